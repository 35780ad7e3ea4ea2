// holds: engine-gpu-report

import { expect, test } from "vitest";
import { parseGpus } from "./gpu-csv.ts";

test("nvidia-smi: lines become GPUs, and missing values are 0", () => {
  const csv = [
    "0, GPU-aa, NVIDIA H100 80GB HBM3, 81559, 12000, 97, 55, 412.34",
    "1, GPU-bb, NVIDIA A2, 15356, 0, [N/A], 40, [Not Supported]",
    "",
  ].join("\n");
  const mebibyte = 1024 * 1024;
  expect(parseGpus(csv)).toEqual([
    {
      index: 0,
      uuid: "GPU-aa",
      name: "NVIDIA H100 80GB HBM3",
      memoryBytes: 81_559 * mebibyte,
      memoryUsedBytes: 12_000 * mebibyte,
      utilizationPercent: 97,
      temperatureCelsius: 55,
      powerWatts: 412.34,
    },
    {
      index: 1,
      uuid: "GPU-bb",
      name: "NVIDIA A2",
      memoryBytes: 15_356 * mebibyte,
      memoryUsedBytes: 0,
      utilizationPercent: 0,
      temperatureCelsius: 40,
      powerWatts: 0,
    },
  ]);
});
