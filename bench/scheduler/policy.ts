import type { TracePod } from "./trace.ts";

/** Places pods one by one, each tried once; none ever leaves. */
export interface Policy {
  /** Places the pod and returns true, or changes nothing and returns false. */
  place(pod: TracePod): boolean;
}
