import { AppError } from "@heddle/base/errors";
import type { Gpu } from "@heddle/contracts/generated/heddle/v1/Gpu";

const MAX_DEVICES = 1_024;

/**
 * The simulated devices of `--simulate-gpus 8xH100-80GB`, marked as such. Throws an AppError
 * `invalid_value`.
 */
export function simulatedGpus(text: string): Gpu[] {
  const [, count, name, gigabytes] =
    /^(\d{1,4})x([A-Za-z][\w.]{0,31})-(\d{1,4})GB$/.exec(text) ?? [];
  if (!name || Number(count) < 1 || Number(count) > MAX_DEVICES || Number(gigabytes) < 1) {
    const message = `--simulate-gpus takes COUNTxNAME-MEMORYGB, as 8xH100-80GB, with 1..${MAX_DEVICES} devices, not ${text}`;
    throw new AppError("invalid_value", message);
  }
  return Array.from({ length: Number(count) }, (_, index) => ({
    index,
    uuid: `simulated-${index}`,
    name,
    memoryBytes: Number(gigabytes) * 2 ** 30,
    memoryUsedBytes: 0,
    utilizationPercent: 0,
    temperatureCelsius: 0,
    powerWatts: 0,
    simulated: true,
    fault: "",
  }));
}
