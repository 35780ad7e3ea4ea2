import type { SecretKeys } from "@heddle/base/secret-keys";
import { Agreement, type AgreementParts } from "@heddle/consensus/member/agreement";
import { keyAgreement } from "@heddle/consensus/member/key-agreement";
import { versionRaise } from "@heddle/consensus/member/version-raise";
import { SEALED } from "@heddle/control/cluster-version";
import type { LogCommand } from "@heddle/control/replicated-control";
import type { ControlMachine } from "./control-machine.ts";

/** What the group takes up when all its members can: a higher version, a key for its log. */
export function startAgreements(
  parts: AgreementParts,
  { control }: ControlMachine,
  keys: SecretKeys,
  propose: (entry: LogCommand) => Promise<unknown>,
): Agreement[] {
  const { log } = parts;
  const steps = [
    versionRaise({
      supported: control.newest,
      version: () => control.version,
      raise: (version) => propose({ type: "version.raise", atMs: Date.now(), version }),
      log,
    }),
    keyAgreement({
      keys,
      control,
      sinceVersion: SEALED,
      use: (id) => propose({ type: "secrets.key", atMs: Date.now(), id }),
      log,
    }),
  ];
  return steps.map((step) => new Agreement(parts, step));
}
