import * as real from "@heddle/base/process-alive";
import { here } from "../simulated-process.ts";

/** `process-alive` of a simulated machine, which has another id after each start. */
export * from "@heddle/base/process-alive";

export function bootId(): string {
  const process = here();
  return process ? `${process.machine} since ${process.clock.bootedUs}` : real.bootId();
}
