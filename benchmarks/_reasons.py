"""Why a row misses its bar: what the profile shows. By the rows' keys; printed only where it does."""

REASONS: dict[str, str] = {
    "mobilenet-v2": (
        "1x1 layers run at 80 to 95 % of the peak of the multiply-adds; layers at 112x112 and depthwise ones wait "
        "for L3; 52 small kernels each wake the other thread"
    ),
    "mlp": (
        "three kernels take 20 us, the time both cores need to read 2.7 MB of weights from L2 and L3; the rest is the "
        "call from Python: checks, arguments, the VM"
    ),
    "mlp-b64": "the matmuls are at the peak of the multiply-adds in both programs",
    "open-nsfw": (
        "thirty-two 1x1 layers are at the peak of the multiply-adds in both programs; only the 3x3 layers and the stem "
        "gain by Winograd"
    ),
    "minilm": (
        "matmuls are at 90 % of the peak of the multiply-adds; the rest is two dozen kernels of 10 to 60 us: "
        "attention, layer norms, embedding rows; each wakes the other thread"
    ),
    "pp-ocr-rec": (
        "1x1 layers are at the peak of the multiply-adds; what is left is depthwise layers, squeeze-and-excite "
        "blocks and three slices of q, k and v that the generic schedule copies"
    ),
    "resnet50": "1x1 layers, two thirds of its time, are at the peak of the multiply-adds in both programs",
    "matmul-512-weights": (
        "both programs are at the peak of the multiply-adds: 0.27 GFLOP take 1.16 ms at 232 GFLOP/s, which is what the "
        "loop of the scaling row reaches; a ratio of 0.95 is out of reach in float32"
    ),
    "matmul-512-inputs": "the kernel is at 95 % of the peak of the multiply-adds, packing included",
    "matmul-1x512x1000": "the kernel reads 2 MB of weights at the speed of L2 and L3; the rest is the call from Python",
    "batch-matmul": "the kernel is at 200 GFLOP/s; the rest is the call from Python and a wake-up of the other thread",
    "scaling-resnet18": (
        "the 7x7 layers stream transformed weights from memory, which delivers 30 GB/s to one core and 45 to both"
    ),
}
