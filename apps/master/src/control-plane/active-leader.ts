import type { ControlPlane } from "./control-plane.ts";

/**
 * Whether this master is the one that acts for the group now. One that was elected a moment ago does
 * not yet: what its predecessor committed last may not be applied here, and a task of that plan, say,
 * would look like one that nobody asked for.
 */
export function isActiveLeader(control: ControlPlane): boolean {
  return control.fault === undefined && (control.group?.status().leads ?? true);
}
