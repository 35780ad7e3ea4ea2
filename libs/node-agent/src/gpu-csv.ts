import type { Gpu } from "@heddle/contracts/generated/heddle/v1/Gpu";

/** Parses the CSV of `nvidia-smi --query-gpu`; unsupported values ("[N/A]") are 0. */
export function parseGpus(csv: string): Gpu[] {
  const mebibyte = 1024 * 1024;
  const lines = csv.split("\n").filter((line) => line.trim() !== "");
  return lines.map((line) => {
    const [index, uuid, name, total, used, utilization, temperature, power] = line
      .split(",")
      .map((cell) => cell.trim());
    return {
      index: figure(index),
      uuid: uuid ?? "",
      name: name ?? "",
      memoryBytes: figure(total) * mebibyte,
      memoryUsedBytes: figure(used) * mebibyte,
      utilizationPercent: figure(utilization),
      temperatureCelsius: figure(temperature),
      powerWatts: figure(power),
    };
  });
}

function figure(cell: string | undefined): number {
  const value = Number.parseFloat(cell ?? "");
  return Number.isFinite(value) ? value : 0;
}

/** The queried fields, in the order that `parseGpus` reads. */
export const GPU_FIELDS =
  "index,uuid,name,memory.total,memory.used,utilization.gpu,temperature.gpu,power.draw";
