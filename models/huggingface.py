"""Models of the package transformers. They are built from configurations, so nothing is downloaded."""

from torch import nn

HEAD_WIDTH = 64


def resnet(
    depths: tuple[int, ...] = (3, 4, 6, 3), width: int = 64, classes: int = 1000
) -> nn.Module:
    from transformers import ResNetConfig, ResNetForImageClassification

    config = ResNetConfig(
        embedding_size=width, hidden_sizes=[4 * width << i for i in range(len(depths))],
        depths=list(depths), num_labels=classes,
    )
    return ResNetForImageClassification(config)


def gpt2(
    layers: int = 12, width: int = 768, vocabulary: int = 50257, length: int = 1024,
    dropout: float = 0.1,
) -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        n_layer=layers, n_embd=width, n_head=max(1, width // HEAD_WIDTH), vocab_size=vocabulary,
        n_positions=length, bos_token_id=0, eos_token_id=0, use_cache=False,
        resid_pdrop=dropout, embd_pdrop=dropout, attn_pdrop=dropout,
    )
    model = GPT2LMHeadModel(config)
    model.loss_type = "ForCausalLM"  # It would use this one anyway, after a warning.
    return model


def bert(
    layers: int = 12, width: int = 768, vocabulary: int = 30522, length: int = 512
) -> nn.Module:
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        num_hidden_layers=layers, hidden_size=width, intermediate_size=4 * width,
        num_attention_heads=max(1, width // HEAD_WIDTH), vocab_size=vocabulary,
        max_position_embeddings=length,
    )
    return BertForMaskedLM(config)


def vit(
    layers: int = 12, width: int = 768, size: int = 224, patch: int = 16, classes: int = 1000
) -> nn.Module:
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        num_hidden_layers=layers, hidden_size=width, intermediate_size=4 * width,
        num_attention_heads=max(1, width // HEAD_WIDTH), image_size=size, patch_size=patch,
        num_labels=classes,
    )
    return ViTForImageClassification(config)


def convnext(
    depths: tuple[int, ...] = (3, 3, 27, 3), width: int = 128, classes: int = 1000
) -> nn.Module:
    """ConvNeXt-B; each stage has twice the channels of the one before."""
    from transformers import ConvNextConfig, ConvNextForImageClassification

    config = ConvNextConfig(
        depths=list(depths), hidden_sizes=[width << i for i in range(len(depths))], num_labels=classes,
    )
    return ConvNextForImageClassification(config)


def llama(
    layers: int = 16, width: int = 2048, inner: int = 8192, vocabulary: int = 128_256,
    length: int = 2048,
) -> nn.Module:
    """A Llama in bfloat16. Four heads share their keys and values, and the embedding is tied."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    heads = max(1, width // HEAD_WIDTH)
    config = LlamaConfig(
        num_hidden_layers=layers, hidden_size=width, intermediate_size=inner, vocab_size=vocabulary,
        num_attention_heads=heads, num_key_value_heads=max(1, heads // 4), use_cache=False,
        max_position_embeddings=length, tie_word_embeddings=True,
    )
    return LlamaForCausalLM._from_config(config, dtype=torch.bfloat16)
