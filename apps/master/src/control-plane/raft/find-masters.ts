import { AppError } from "@heddle/base/errors";
import { findAdmission } from "@heddle/consensus/member/admission";
import { Formation } from "@heddle/consensus/member/formation";
import type { Introduction__Output } from "@heddle/contracts/generated/heddle/v1/Introduction";
import type { ControlPlane } from "../control-plane.ts";
import { propose, proposeOnce } from "../propose.ts";
import type { RaftService } from "./raft-service.ts";

/** Finds or forms the group of a master that is in none, and answers other masters meanwhile. */
export function findMasters(
  parts: ConstructorParameters<typeof Formation>[0],
  service: RaftService,
): ReturnType<Formation["find"]> {
  const formation = new Formation(parts);
  service.serve({ introduce: (from) => formation.introduce(from) });
  return formation.find();
}

type Admitting = ControlPlane & { readBarrier(): Promise<void> };

/** Admits a master by its join token, which may have been made through another master just now. */
export async function admitMember(control: Admitting, from: Introduction__Output) {
  const find = () => findAdmission(control.state.joins, from, Date.now());
  if (find() === undefined) await control.readBarrier();
  const id = find();
  const join = id === undefined ? undefined : control.state.joins.get(id);
  if (id === undefined || !join) {
    const message = `${from.name} shows no join token that is valid: an administrator adds a master by heddle cluster add ${from.name}, which gives it its --join-token-file`;
    throw new AppError("permission_denied", message);
  }
  await proposeOnce(control, { type: "join.use", atMs: Date.now(), id, role: "master" });
  const takeBack = async () => {
    await propose(control, { type: "join.create", atMs: Date.now(), id, join }).catch(() => {});
  };
  return { takeBack };
}
