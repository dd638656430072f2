"""Models of transformers that look at images and films: classes, boxes, masks and depths."""

from __future__ import annotations

from functools import partial

import torch

from .build import (
    CLASSES,
    HEADS,
    INNER,
    SIZE,
    WIDTH,
    Architecture,
    boxes,
    films,
    from_transformers,
    images,
    maps,
    picture_sizes,
    segments,
)

attention = partial(from_transformers, "vision transformer", batch=8)
convolution = partial(from_transformers, "convolutional network", batch=8)
detection = partial(from_transformers, "detection", batch=8, needs=("scipy",))  # It matches boxes with objects.
segmentation = partial(from_transformers, "segmentation or depth", batch=4)
video = partial(from_transformers, "video", batch=4)

SWIN = {"image_size": SIZE, "patch_size": 2, "embed_dim": 24, "depths": [1, 2], "num_heads": [2, 4], "window_size": 4,
        "num_labels": CLASSES}
RESNET = {"embedding_size": 16, "hidden_sizes": [16, 32, 64], "depths": [1, 1, 1], "layer_type": "basic",
          "num_labels": CLASSES}
# Without a wide stem, in which one call would take most of what the step takes.
RESNET_BACKBONE = {"model_type": "resnet", **RESNET, "embedding_size": 8, "hidden_sizes": [8, 16, 64], "out_features": ["stage3"]}
PYRAMID = {"model_type": "resnet", **RESNET, "out_features": ["stage1", "stage2", "stage3"]}
SWIN_BACKBONE = {"model_type": "swin", "image_size": 64, "patch_size": 2, "embed_dim": 24, "depths": [1, 1, 1, 1],
                 "num_heads": [1, 2, 2, 4], "window_size": 4, "out_features": ["stage1", "stage2", "stage3", "stage4"]}
DETR = {"d_model": WIDTH, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": HEADS,
        "decoder_attention_heads": HEADS, "encoder_ffn_dim": INNER, "decoder_ffn_dim": INNER, "num_queries": 40,
        "num_labels": CLASSES, "use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None,
        "auxiliary_loss": True}

ATTENTION = (
    attention("vit", "ViTForImageClassification", images(), **picture_sizes()),
    attention("deit", "DeiTForImageClassification", images(), **picture_sizes()),
    attention("beit", "BeitForImageClassification", images(), **picture_sizes(drop_path_rate=0.2)),
    attention("dinov2", "Dinov2ForImageClassification", images(), **picture_sizes(mlp_ratio=3, drop_path_rate=0.2)),
    attention("vit-mae", "ViTMAEForPreTraining", images(labels=False), **picture_sizes(
        decoder_hidden_size=WIDTH, decoder_num_hidden_layers=2, decoder_num_attention_heads=HEADS,
        decoder_intermediate_size=INNER)),
    attention("swin", "SwinForImageClassification", images(), **SWIN),
    attention("swinv2", "Swinv2ForImageClassification", images(), **SWIN),
    attention("pvt-v2", "PvtV2ForImageClassification", images(), batch=16, hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 1, 1],
              num_attention_heads=[1, 2, 2, 4], sr_ratios=[4, 2, 1, 1], num_labels=CLASSES),
    attention("cvt", "CvtForImageClassification", images(), embed_dim=[16, 32, 64], num_heads=[1, 2, 4], depth=[1, 2, 3],
              num_labels=CLASSES),
    attention("levit", "LevitForImageClassification", images(64), batch=32, image_size=64, hidden_sizes=[32, 48, 64],
              num_attention_heads=[2, 3, 4], depths=[1, 1, 1], key_dim=[8, 8, 8], num_labels=CLASSES),
    attention("mobilevit", "MobileViTForImageClassification", images(64), image_size=64, hidden_sizes=[32, 48, 64],
              neck_hidden_sizes=[8, 16, 24, 32, 48, 64, 96], num_labels=CLASSES),
    attention("hiera", "HieraForImageClassification", images(64), image_size=[64, 64], embed_dim=16, depths=[1, 1, 2, 1],
              num_heads=[1, 2, 4, 8], num_labels=CLASSES),
    attention("focalnet", "FocalNetForImageClassification", images(), image_size=SIZE, patch_size=2, embed_dim=24,
              depths=[1, 1], focal_levels=[2, 2], focal_windows=[3, 3], hidden_sizes=[24, 48], num_labels=CLASSES),
    attention("swiftformer", "SwiftFormerForImageClassification", images(64), image_size=64, depths=[1, 1, 1, 1],
              embed_dims=[16, 24, 32, 48], num_labels=CLASSES),
    attention("swin2sr", "Swin2SRForImageSuperResolution", images(16, labels=False), batch=4, loss=lambda output:
              output.reconstruction.square().mean(), image_size=16, patch_size=1, embed_dim=24, depths=[2, 2], num_heads=[2, 2],
              window_size=4, upscale=2),
)

CONVOLUTIONS = (
    convolution("resnet", "ResNetForImageClassification", images(64), batch=16, **RESNET),
    convolution("regnet", "RegNetForImageClassification", images(64), embedding_size=16, hidden_sizes=[16, 32, 64],
                depths=[1, 1, 2], groups_width=8, layer_type="y", num_labels=CLASSES),
    convolution("convnext", "ConvNextForImageClassification", images(64), hidden_sizes=[16, 32, 48], depths=[1, 1, 2],
                num_stages=3, drop_path_rate=0.1, num_labels=CLASSES),
    convolution("convnextv2", "ConvNextV2ForImageClassification", images(64), hidden_sizes=[16, 32, 48], depths=[1, 1, 2],
                num_stages=3, num_labels=CLASSES),
    convolution("bit", "BitForImageClassification", images(64), batch=16, embedding_size=16,
                hidden_sizes=[16, 32, 64], depths=[1, 1, 1], num_groups=4, num_labels=CLASSES),
    convolution("mobilenet-v2", "MobileNetV2ForImageClassification", images(), batch=16, image_size=SIZE, depth_multiplier=0.25,
                num_labels=CLASSES),
    convolution("efficientnet", "EfficientNetForImageClassification", images(), image_size=SIZE, width_coefficient=0.25,
                hidden_dim=320, num_block_repeats=[1, 1, 1, 1, 1, 1, 1], num_labels=CLASSES),
    convolution("poolformer", "PoolFormerForImageClassification", images(64), depths=[1, 1, 1, 1], hidden_sizes=[16, 32, 48, 64],
                num_labels=CLASSES),
)

DETECTION = (
    detection("detr", "DetrForObjectDetection", boxes(128), backbone_config=RESNET_BACKBONE, **DETR),
    detection("conditional-detr", "ConditionalDetrForObjectDetection", boxes(128), backbone_config=RESNET_BACKBONE, **DETR),
    detection("deformable-detr", "DeformableDetrForObjectDetection", boxes(64), backbone_config=PYRAMID, num_feature_levels=3,
              with_box_refine=True, **DETR),
    detection("yolos", "YolosForObjectDetection", boxes(), **picture_sizes(image_size=[SIZE, SIZE], num_detection_tokens=20)),
    detection("rt-detr", "RTDetrForObjectDetection", boxes(64), d_model=WIDTH, encoder_hidden_dim=WIDTH, num_queries=20,
              encoder_in_channels=[32, 48, 64], feat_strides=[8, 16, 32], encoder_ffn_dim=INNER, decoder_ffn_dim=INNER,
              decoder_layers=2, encoder_attention_heads=HEADS, decoder_attention_heads=HEADS, num_denoising=10,
              decoder_in_channels=[WIDTH, WIDTH, WIDTH], num_labels=CLASSES, freeze_backbone_batch_norms=False,
              backbone_config={"model_type": "rt_detr_resnet", "embedding_size": 16, "hidden_sizes": [16, 32, 48, 64],
                               "depths": [1, 1, 1, 1], "layer_type": "basic",
                               "out_features": ["stage2", "stage3", "stage4"]}),
)

SEGMENTATION = (
    segmentation("segformer", "SegformerForSemanticSegmentation", maps(64),
                 hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 1, 1],
                 num_attention_heads=[1, 2, 2, 4], decoder_hidden_size=WIDTH, num_labels=CLASSES),
    segmentation("maskformer", "MaskFormerForInstanceSegmentation", segments(64), needs=("scipy",),
                 fpn_feature_size=32, mask_feature_size=32,
                 num_labels=CLASSES, backbone_config=SWIN_BACKBONE,
                 decoder_config={"model_type": "detr", **DETR, "num_queries": 20, "backbone_config": RESNET_BACKBONE}),
    segmentation("mask2former", "Mask2FormerForUniversalSegmentation", segments(64), needs=("scipy",),
                 feature_size=32, mask_feature_size=32,
                 hidden_dim=32, encoder_feedforward_dim=64, encoder_layers=2, decoder_layers=2, num_attention_heads=HEADS,
                 dim_feedforward=64, num_queries=20, train_num_points=256, num_labels=CLASSES,
                 backbone_config=SWIN_BACKBONE),
    segmentation("upernet", "UperNetForSemanticSegmentation", maps(64), hidden_size=32, auxiliary_channels=16,
                 auxiliary_in_channels=96, pool_scales=[1, 2], num_labels=CLASSES, backbone_config=SWIN_BACKBONE),
    segmentation("dpt", "DPTForSemanticSegmentation", maps(SIZE), **picture_sizes(
        num_hidden_layers=4, backbone_out_indices=[0, 1, 2, 3], neck_hidden_sizes=[16, 16, 32, 32], fusion_hidden_size=16,
        auxiliary_loss_weight=0.4, semantic_loss_ignore_index=255)),
    segmentation("glpn", "GLPNForDepthEstimation", maps(64, dtype=torch.float32), hidden_sizes=[16, 32, 48, 64],
                 depths=[1, 1, 1, 1], num_attention_heads=[1, 2, 2, 4], decoder_hidden_size=16),
)

VIDEO = (
    video("videomae", "VideoMAEForVideoClassification", films(4), **picture_sizes(num_frames=4, tubelet_size=2, patch_size=4)),
    video("timesformer", "TimesformerForVideoClassification", films(4), **picture_sizes(num_frames=4, patch_size=8)),
    video("vivit", "VivitForVideoClassification", films(4), **picture_sizes(num_frames=4, tubelet_size=[2, 8, 8])),
)

VISION: tuple[Architecture, ...] = (*ATTENTION, *CONVOLUTIONS, *DETECTION, *SEGMENTATION, *VIDEO)
