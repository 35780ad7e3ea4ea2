import type { ControlPlane } from "./control-plane.ts";

/**
 * Whether this master acts for the group now. A newly elected one first applies its predecessor's
 * last commits: before, a task of the last plan would look like an unknown one.
 */
export function isActiveLeader(control: ControlPlane): boolean {
  return control.fault === undefined && (control.group?.status().isActiveLeader ?? true);
}
