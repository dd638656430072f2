"""Language models of transformers: encoders, decoders, pairs of both, mixtures of experts and scans."""

from __future__ import annotations

from functools import partial

from .build import (
    CLASSES,
    HEADS,
    INNER,
    LAYERS,
    LENGTH,
    WIDTH,
    WORDS,
    Architecture,
    classified_text,
    decoder_sizes,
    from_transformers,
    grouped,
    pair_sizes,
    sizes,
    text,
    text_pairs,
)

encoder = partial(from_transformers, "encoder")
decoder = partial(from_transformers, "decoder")
pair = partial(from_transformers, "encoder and decoder")
experts = partial(from_transformers, "mixture of experts")
scan = partial(from_transformers, "scan or recurrence")

GPT_SIZES = {"n_embd": WIDTH, "n_layer": LAYERS, "n_head": HEADS, "n_positions": LENGTH, "vocab_size": WORDS,
             "bos_token_id": 1, "eos_token_id": 2, "use_cache": False}

ENCODERS = (
    encoder("bert", "BertForMaskedLM", text(), **sizes()),
    encoder("roberta", "RobertaForMaskedLM", text(), **sizes(max_position_embeddings=LENGTH + 2)),
    encoder("albert", "AlbertForMaskedLM", text(), **sizes(embedding_size=32)),
    encoder("electra", "ElectraForMaskedLM", text(), **sizes(embedding_size=32)),
    encoder("distilbert", "DistilBertForMaskedLM", text(), vocab_size=WORDS, dim=WIDTH, hidden_dim=INNER, n_layers=LAYERS,
            n_heads=HEADS, max_position_embeddings=LENGTH),
    encoder("deberta", "DebertaForMaskedLM", text(), **sizes(relative_attention=True, pos_att_type=["c2p", "p2c"])),
    encoder("deberta-v2", "DebertaV2ForMaskedLM", text(),
            **sizes(relative_attention=True, pos_att_type=["c2p", "p2c"], position_buckets=16)),
    encoder("mobilebert", "MobileBertForMaskedLM", text(),
            **sizes(embedding_size=32, intra_bottleneck_size=32, true_hidden_size=32, hidden_size=WIDTH)),
    encoder("squeezebert", "SqueezeBertForMaskedLM", text(), **sizes(embedding_size=WIDTH)),
    encoder("mpnet", "MPNetForMaskedLM", text(), **sizes(max_position_embeddings=LENGTH + 2)),
    encoder("roformer", "RoFormerForMaskedLM", text(), **sizes(embedding_size=WIDTH)),
    encoder("fnet", "FNetForMaskedLM", text(), **sizes(tpu_short_seq_length=LENGTH)),
    encoder("funnel", "FunnelForMaskedLM", text(), vocab_size=WORDS, block_sizes=[1, 1], d_model=WIDTH, n_head=HEADS, d_head=16,
            d_inner=INNER),
    encoder("convbert", "ConvBertForMaskedLM", text(), **sizes(embedding_size=WIDTH)),
    encoder("bigbird", "BigBirdForMaskedLM", text(128), batch=4,
            **sizes(attention_type="block_sparse", block_size=8, num_random_blocks=2, max_position_embeddings=128)),
    encoder("longformer", "LongformerForMaskedLM", text(), **sizes(attention_window=16, max_position_embeddings=LENGTH + 2,
                                                                   pad_token_id=1)),
    encoder("nystromformer", "NystromformerForMaskedLM", text(), **sizes(num_landmarks=8, segment_means_seq_len=LENGTH)),
    encoder("modernbert", "ModernBertForMaskedLM", text(), **sizes(pad_token_id=0, local_attention=16, bos_token_id=1,
                                                                   eos_token_id=2, cls_token_id=1, sep_token_id=2)),
    encoder("esm", "EsmForMaskedLM", text(), **sizes(position_embedding_type="rotary", pad_token_id=0, mask_token_id=3,
                                                     token_dropout=True)),
    encoder("ibert", "IBertForMaskedLM", text(), **sizes(max_position_embeddings=LENGTH + 2)),
    encoder("xlm", "XLMWithLMHeadModel", text(), vocab_size=WORDS, n_words=WORDS, emb_dim=WIDTH, n_layers=LAYERS,
            n_heads=HEADS, max_position_embeddings=LENGTH),
    encoder("perceiver", "PerceiverForMaskedLM", text(), vocab_size=WORDS, d_model=WIDTH, d_latents=WIDTH, num_latents=32,
            num_self_attends_per_block=LAYERS, num_self_attention_heads=HEADS, num_cross_attention_heads=HEADS,
            max_position_embeddings=LENGTH, qk_channels=WIDTH, v_channels=WIDTH),
    encoder("reformer", "ReformerModelWithLMHead", text(), vocab_size=WORDS, hidden_size=WIDTH, is_decoder=True,
            attn_layers=["local", "lsh", "local"], num_attention_heads=HEADS, attention_head_size=16, feed_forward_size=INNER,
            axial_pos_shape=[8, 8], axial_pos_embds_dim=[32, 32], lsh_attn_chunk_length=16, local_attn_chunk_length=16,
            num_buckets=4, max_position_embeddings=LENGTH, pad_token_id=0, eos_token_id=2, use_cache=False),
    encoder("canine", "CanineForSequenceClassification", classified_text(), **sizes(
        num_labels=CLASSES, downsampling_rate=4, local_transformer_stride=16, num_hash_buckets=64, num_hash_functions=4)),
)

DECODERS = (
    decoder("gpt2", "GPT2LMHeadModel", text(), **GPT_SIZES),
    decoder("gpt-neo", "GPTNeoForCausalLM", text(), **decoder_sizes(
        num_hidden_layers=2, num_heads=HEADS, attention_types=[[["global", "local"], 1]], window_size=16)),
    decoder("gpt-j", "GPTJForCausalLM", text(), rotary_dim=8, **GPT_SIZES),
    decoder("gpt-neox", "GPTNeoXForCausalLM", text(), **decoder_sizes()),
    decoder("codegen", "CodeGenForCausalLM", text(), rotary_dim=8, **GPT_SIZES),
    decoder("opt", "OPTForCausalLM", text(), **decoder_sizes(ffn_dim=INNER, word_embed_proj_dim=WIDTH, layerdrop=0.2)),
    decoder("bloom", "BloomForCausalLM", text(), vocab_size=WORDS, hidden_size=WIDTH, n_layer=LAYERS, n_head=HEADS,
            use_cache=False),
    decoder("falcon", "FalconForCausalLM", text(), **decoder_sizes(new_decoder_architecture=True, num_kv_heads=2)),
    decoder("mpt", "MptForCausalLM", text(), vocab_size=WORDS, d_model=WIDTH, n_layers=LAYERS, n_heads=HEADS,
            max_seq_len=LENGTH, use_cache=False),
    decoder("llama", "LlamaForCausalLM", text(), **grouped()),
    decoder("mistral", "MistralForCausalLM", text(), **grouped(sliding_window=16)),
    decoder("gemma", "GemmaForCausalLM", text(), **grouped()),
    decoder("gemma2", "Gemma2ForCausalLM", text(), **grouped(sliding_window=16, query_pre_attn_scalar=16)),
    decoder("gemma3", "Gemma3ForCausalLM", text(), **grouped(sliding_window=16, query_pre_attn_scalar=16)),
    decoder("qwen2", "Qwen2ForCausalLM", text(), **grouped()),
    decoder("qwen3", "Qwen3ForCausalLM", text(), **grouped()),
    decoder("phi", "PhiForCausalLM", text(), **grouped()),
    decoder("phi3", "Phi3ForCausalLM", text(), **grouped()),
    decoder("stablelm", "StableLmForCausalLM", text(), **grouped()),
    decoder("olmo2", "Olmo2ForCausalLM", text(), **grouped()),
    decoder("cohere", "CohereForCausalLM", text(), **grouped()),
    decoder("diffllama", "DiffLlamaForCausalLM", text(), **grouped()),
    decoder("xlnet", "XLNetLMHeadModel", text(), vocab_size=WORDS, d_model=WIDTH, n_layer=LAYERS, n_head=HEADS, d_inner=INNER,
            use_mems_train=False),
    decoder("biogpt", "BioGptForCausalLM", text(), **decoder_sizes(layerdrop=0.2)),
)

EXPERTS = (
    experts("mixtral", "MixtralForCausalLM", text(), **grouped(num_local_experts=4, output_router_logits=True)),
    experts("qwen2-moe", "Qwen2MoeForCausalLM", text(), **grouped(
        num_experts=4, num_experts_per_tok=2, moe_intermediate_size=64, shared_expert_intermediate_size=64)),
    experts("qwen3-moe", "Qwen3MoeForCausalLM", text(), **grouped(
        num_experts=4, num_experts_per_tok=2, moe_intermediate_size=64)),
    experts("olmoe", "OlmoeForCausalLM", text(), **grouped(num_experts=4, num_experts_per_tok=2)),
    experts("granite-moe", "GraniteMoeForCausalLM", text(), **grouped(num_local_experts=4, num_experts_per_tok=2)),
    experts("deepseek-v3", "DeepseekV3ForCausalLM", text(), **decoder_sizes(
        num_key_value_heads=HEADS, moe_intermediate_size=64, n_routed_experts=4, n_shared_experts=1, num_experts_per_tok=2,
        n_group=1, topk_group=1, first_k_dense_replace=1, kv_lora_rank=16, q_lora_rank=32, qk_rope_head_dim=8,
        qk_nope_head_dim=8, v_head_dim=16)),
    experts("gpt-oss", "GptOssForCausalLM", text(), **grouped(num_local_experts=4, num_experts_per_tok=2, sliding_window=16)),
    experts("switch", "SwitchTransformersForConditionalGeneration", text_pairs(), vocab_size=WORDS, d_model=WIDTH, d_kv=16,
            d_ff=INNER, num_layers=2, num_decoder_layers=2, num_heads=HEADS, num_experts=4, expert_capacity=128,
            num_sparse_encoder_layers=1, num_sparse_decoder_layers=1, decoder_start_token_id=0, use_cache=False),
    experts("nllb-moe", "NllbMoeForConditionalGeneration", text_pairs(), **pair_sizes(
        num_experts=4, expert_capacity=128, encoder_sparse_step=2, decoder_sparse_step=2, encoder_layerdrop=0.2,
        decoder_layerdrop=0.2)),
)

# Scans are loops over the words, which a capture unrolls, so that these texts are short.
SCANS = (
    scan("mamba", "MambaForCausalLM", text(16), vocab_size=WORDS, hidden_size=WIDTH, state_size=8, num_hidden_layers=2,
         use_cache=False, pad_token_id=0, bos_token_id=1, eos_token_id=2),
    scan("mamba2", "Mamba2ForCausalLM", text(), vocab_size=WORDS, hidden_size=WIDTH, state_size=16, num_hidden_layers=2,
         num_heads=8, head_dim=16, n_groups=1, chunk_size=16, use_cache=False, pad_token_id=0, bos_token_id=1, eos_token_id=2),
    scan("falcon-mamba", "FalconMambaForCausalLM", text(16), vocab_size=WORDS, hidden_size=WIDTH, state_size=8,
         num_hidden_layers=2, use_cache=False, pad_token_id=0, bos_token_id=1, eos_token_id=2),
    scan("rwkv", "RwkvForCausalLM", text(16), vocab_size=WORDS, hidden_size=WIDTH, attention_hidden_size=WIDTH,
         intermediate_size=INNER, num_hidden_layers=2, context_length=LENGTH, use_cache=False),
    scan("recurrent-gemma", "RecurrentGemmaForCausalLM", text(16), **decoder_sizes(
        num_key_value_heads=1, lru_width=WIDTH, attention_window_size=32, head_dim=16)),
    scan("jamba", "JambaForCausalLM", text(16), **decoder_sizes(
        num_hidden_layers=4, num_key_value_heads=2, num_experts=2, num_experts_per_tok=1, attn_layer_period=4,
        attn_layer_offset=1, expert_layer_period=2, expert_layer_offset=1, mamba_d_state=8, use_mamba_kernels=False)),
    scan("xlstm", "xLSTMForCausalLM", text(), vocab_size=WORDS, hidden_size=WIDTH, num_blocks=2, num_hidden_layers=2,
         num_heads=HEADS, use_cache=False, chunk_size=16, mode="train"),
    scan("lfm2", "Lfm2ForCausalLM", text(), **grouped(layer_types=["conv", "full_attention", "conv"], block_ff_dim=INNER)),
    scan("qwen3-next", "Qwen3NextForCausalLM", text(), **grouped(
        num_hidden_layers=4, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=64, shared_expert_intermediate_size=64,
        linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=16, linear_value_head_dim=16)),
)

T5_SIZES = {"vocab_size": WORDS, "d_model": WIDTH, "d_kv": 16, "d_ff": INNER, "num_layers": 2, "num_decoder_layers": 2,
            "num_heads": HEADS, "decoder_start_token_id": 0, "pad_token_id": 0, "use_cache": False}

PAIRS = (
    pair("t5", "T5ForConditionalGeneration", text_pairs(), **T5_SIZES),
    pair("mt5", "MT5ForConditionalGeneration", text_pairs(), **T5_SIZES),
    pair("long-t5", "LongT5ForConditionalGeneration", text_pairs(), local_radius=7, encoder_attention_type="transient-global",
         global_block_size=4, **T5_SIZES),
    pair("bart", "BartForConditionalGeneration", text_pairs(), **pair_sizes(encoder_layerdrop=0.2, decoder_layerdrop=0.2)),
    pair("mbart", "MBartForConditionalGeneration", text_pairs(), **pair_sizes(encoder_layerdrop=0.2, decoder_layerdrop=0.2)),
    pair("pegasus", "PegasusForConditionalGeneration", text_pairs(), **pair_sizes()),
    pair("blenderbot", "BlenderbotForConditionalGeneration", text_pairs(), **pair_sizes()),
    pair("marian", "MarianMTModel", text_pairs(), **pair_sizes()),
    pair("m2m100", "M2M100ForConditionalGeneration", text_pairs(), **pair_sizes(encoder_layerdrop=0.2, decoder_layerdrop=0.2)),
    pair("prophetnet", "ProphetNetForConditionalGeneration", text_pairs(), vocab_size=WORDS, hidden_size=WIDTH,
         encoder_ffn_dim=INNER, decoder_ffn_dim=INNER, num_encoder_layers=2, num_decoder_layers=2,
         num_encoder_attention_heads=HEADS, num_decoder_attention_heads=HEADS, max_position_embeddings=LENGTH, pad_token_id=0,
         use_cache=False),
    pair("led", "LEDForConditionalGeneration", text_pairs(), **pair_sizes(
        attention_window=16, max_encoder_position_embeddings=LENGTH, max_decoder_position_embeddings=LENGTH)),
    pair("fsmt", "FSMTForConditionalGeneration", text(), **pair_sizes(
        langs=["en", "de"], src_vocab_size=WORDS, tgt_vocab_size=WORDS, encoder_layerdrop=0.2, decoder_layerdrop=0.2)),
)

TEXT: tuple[Architecture, ...] = (*ENCODERS, *DECODERS, *EXPERTS, *SCANS, *PAIRS)
