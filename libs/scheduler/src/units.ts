import type { NodeScalars } from "./model.ts";

/** The scalar amounts in the order of the ledger's columns. */
export const SCALARS = [
  "cpuMilli",
  "memoryMib",
  "localSsdGb",
  "ioOperationsPerSec",
  "networkMbps",
] as const satisfies readonly (keyof NodeScalars)[];

/** The column of CPU in the ledger's scalars. */
export const CPU = 0;

/** GPU amounts count in thousandths of one device. */
export const WHOLE_DEVICE_MILLI = 1000;
