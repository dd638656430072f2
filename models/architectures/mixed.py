"""Speech, images with text, and series of transformers; and networks of this project that denoise."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from ..zoo import Inputs, MakeSample
from .build import (
    CLASSES,
    HEADS,
    INNER,
    LAYERS,
    SIZE,
    WIDTH,
    WORDS,
    Architecture,
    captioned,
    from_transformers,
    grouped,
    of_this_project,
    pair_sizes,
    picture_sizes,
    sizes,
    sounds,
    spectra,
    words,
)
from .denoiser import DiffusionTransformer, DiffusionUNet

speech = partial(from_transformers, "speech", batch=8)
image_and_text = partial(from_transformers, "images and text", batch=8)
series = partial(from_transformers, "time series", batch=16)
diffusion = partial(of_this_project, "diffusion")

# The convolutions that turn a wave of 4,000 numbers into about 50 vectors. Layers are dropped at random, as in training.
WAVE = {"hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "intermediate_size": INNER,
        "conv_dim": [32, 32, 32], "conv_kernel": [10, 8, 4], "conv_stride": [5, 4, 4], "num_feat_extract_layers": 3,
        "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4, "vocab_size": 32, "layerdrop": 0.2,
        "mask_time_prob": 0.2, "mask_time_length": 4, "num_labels": CLASSES, "pad_token_id": 0, "ctc_zero_infinity": True}
WAVES = sounds(4000, 8)

SPEECH = (
    speech("wav2vec2", "Wav2Vec2ForCTC", WAVES, **WAVE),
    speech("wav2vec2-conformer", "Wav2Vec2ConformerForCTC", WAVES, **WAVE),
    speech("hubert", "HubertForCTC", WAVES, **WAVE),
    speech("wavlm", "WavLMForCTC", WAVES, num_buckets=32, max_bucket_distance=64, **WAVE),
    speech("sew", "SEWForCTC", WAVES, squeeze_factor=2, **WAVE),
    speech("data2vec-audio", "Data2VecAudioForCTC", WAVES, **WAVE),
    speech("whisper", "WhisperForConditionalGeneration", spectra(80, 256, label_length=32), **pair_sizes(
        num_mel_bins=80, max_source_positions=128, max_target_positions=64, encoder_layerdrop=0.2, decoder_layerdrop=0.2,
        suppress_tokens=None, begin_suppress_tokens=None)),
    speech("speech2text", "Speech2TextForConditionalGeneration", spectra(256, 80, label_length=32), **pair_sizes(
        input_feat_per_channel=80, max_source_positions=128, max_target_positions=64, conv_channels=WIDTH,
        encoder_layerdrop=0.2, decoder_layerdrop=0.2)),
    speech("moonshine", "MoonshineForConditionalGeneration", lambda batch, generator: ((), {
        "input_values": torch.randn(batch, 16000, generator=generator), "labels": words(batch, 16, generator)}),
           vocab_size=WORDS, hidden_size=WIDTH, intermediate_size=INNER, encoder_num_hidden_layers=2, decoder_num_hidden_layers=2,
           encoder_num_attention_heads=HEADS, decoder_num_attention_heads=HEADS, use_cache=False, pad_token_id=0,
           bos_token_id=1, eos_token_id=2, decoder_start_token_id=1),
    speech("ast", "ASTForAudioClassification", spectra(64, 32, name="input_values"), batch=8, **picture_sizes(
        max_length=64, num_mel_bins=32, patch_size=8, frequency_stride=4, time_stride=4)),
)

TEXT_TOWER = sizes(num_hidden_layers=2, max_position_embeddings=16, pad_token_id=0, bos_token_id=1, eos_token_id=2)
IMAGE_TOWER = {**picture_sizes(num_hidden_layers=2)}
TOWERS: dict[str, Any] = {"text_config": TEXT_TOWER, "vision_config": IMAGE_TOWER, "projection_dim": 32}
PAIRED = captioned(return_loss=True)


def bert_with_images(batch: int, generator: torch.Generator) -> Inputs:
    text = words(batch, 32, generator)
    return (), {"input_ids": text, "visual_embeds": torch.randn(batch, 16, 48, generator=generator),
                "attention_mask": torch.ones_like(text), "visual_attention_mask": torch.ones_like(text[:, :16]),
                "labels": torch.cat([text, torch.full((batch, 16), -100)], 1)}


def answered(batch: int, generator: torch.Generator) -> Inputs:
    _, inputs = captioned(length=32)(batch, generator)
    return (), {**inputs, "labels": torch.rand(batch, CLASSES, generator=generator)}


def seen_words(batch: int, generator: torch.Generator) -> Inputs:
    """Texts in which the first sixteen words stand for the patches of the image."""
    _, inputs = captioned(length=48)(batch, generator)
    inputs["input_ids"][:, :16] = WORDS - 1
    return (), {**inputs, "labels": inputs["input_ids"].clone()}


def written_captions(batch: int, generator: torch.Generator) -> Inputs:
    _, inputs = captioned()(batch, generator)
    return (), {**inputs, "labels": inputs["input_ids"].clone()}


IMAGES_AND_TEXT = (
    image_and_text("clip", "CLIPModel", PAIRED, **TOWERS),
    image_and_text("siglip", "SiglipModel", PAIRED, text_config=TEXT_TOWER | {"projection_size": WIDTH},
                   vision_config=IMAGE_TOWER),
    image_and_text("chinese-clip", "ChineseCLIPModel", PAIRED, **TOWERS),
    image_and_text("blip", "BlipForConditionalGeneration", written_captions, vision_config=IMAGE_TOWER,
                   text_config=TEXT_TOWER | {"encoder_hidden_size": WIDTH, "sep_token_id": 2}),
    image_and_text("vilt", "ViltForQuestionAnswering", answered, **sizes(image_size=SIZE, patch_size=8, num_labels=CLASSES)),
    image_and_text("visual-bert", "VisualBertForPreTraining", bert_with_images,
                   **sizes(visual_embedding_dim=48)),
    image_and_text("git", "GitForCausalLM", lambda batch, generator: ((), dict(zip(
        ("input_ids", "pixel_values"), captioned()(batch, generator)[1].values(), strict=True))),
                   loss=lambda output: output.logits.float().logsumexp(-1).mean(), vision_config=IMAGE_TOWER,
                   **sizes(bos_token_id=1, eos_token_id=2, pad_token_id=0)),
    image_and_text("llava", "LlavaForConditionalGeneration", seen_words, image_token_index=WORDS - 1, image_token_id=WORDS - 1,
                   vision_feature_select_strategy="default", vision_feature_layer=-1,
                   text_config={"model_type": "llama", **grouped()},
                   vision_config={"model_type": "clip_vision_model", **IMAGE_TOWER, "patch_size": 8}),
)

HISTORY, FUTURE = 48, 24


def past_and_future(batch: int, generator: torch.Generator) -> Inputs:
    past, future = HISTORY + 7, FUTURE
    return (), {"past_values": torch.rand(batch, past, generator=generator),
                "past_time_features": torch.rand(batch, past, 2, generator=generator),
                "past_observed_mask": torch.ones(batch, past),
                "future_values": torch.rand(batch, future, generator=generator),
                "future_time_features": torch.rand(batch, future, 2, generator=generator)}


def channels(batch: int, generator: torch.Generator) -> Inputs:
    return (), {"past_values": torch.randn(batch, 64, 4, generator=generator),
                "future_values": torch.randn(batch, 16, 4, generator=generator)}


FORECAST = {"prediction_length": FUTURE, "context_length": HISTORY, "num_time_features": 2, "d_model": WIDTH,
            "encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": INNER, "decoder_ffn_dim": INNER, "use_cache": False,
            "encoder_layerdrop": 0.2, "decoder_layerdrop": 0.2, "encoder_attention_heads": 2, "decoder_attention_heads": 2}

SERIES = (
    series("time-series-transformer", "TimeSeriesTransformerForPrediction", past_and_future, **FORECAST),
    series("informer", "InformerForPrediction", past_and_future, **FORECAST),
    series("autoformer", "AutoformerForPrediction", past_and_future, **FORECAST),
    series("patchtst", "PatchTSTForPrediction", channels, num_input_channels=4, context_length=64, prediction_length=16,
           patch_length=4, patch_stride=4, d_model=WIDTH, ffn_dim=INNER, num_hidden_layers=LAYERS, num_attention_heads=HEADS),
    series("patchtsmixer", "PatchTSMixerForPrediction", channels, num_input_channels=4, context_length=64, prediction_length=16,
           patch_length=4, patch_stride=4, d_model=WIDTH, num_layers=LAYERS),
)


def pictures(size: int) -> MakeSample:
    return lambda batch, generator: ((torch.randn(batch, 3, size, size, generator=generator),), {})


DIFFUSION = (
    diffusion("diffusion-unet", DiffusionUNet, pictures(SIZE), loss=lambda loss: loss),
    diffusion("diffusion-transformer", DiffusionTransformer, pictures(SIZE), loss=lambda loss: loss),
)

MIXED: tuple[Architecture, ...] = (*SPEECH, *IMAGES_AND_TEXT, *SERIES, *DIFFUSION)
