import { createHmac, type KeyObject } from "node:crypto";
import { settingValue } from "@heddle/contracts/api/settings";
import { Inject } from "@nestjs/common";
import { PEPPER } from "../control-plane/control-plane.module.ts";
import { CONTROL_PLANE, type ControlPlane } from "../control-plane/control-plane.ts";

const MAX_KEPT = 1_000;

/**
 * The salts of prefix caches: the time to a first token does not depend on other projects' prompts.
 * A project has the same salt on every master, and it is computed with a secret of the masters.
 */
export class CacheSalts {
  readonly #control: Pick<ControlPlane, "state">;
  readonly #pepper: KeyObject;
  readonly #kept = new Map<string, string>();

  constructor(
    @Inject(CONTROL_PLANE) control: Pick<ControlPlane, "state">,
    @Inject(PEPPER) pepper: KeyObject,
  ) {
    this.#control = control;
    this.#pepper = pepper;
  }

  /** Empty where all projects share what engines have cached. */
  of(project: string): string {
    if (settingValue(this.#control.state.settings, "shared_prefix_cache") === 1) return "";
    const kept = this.#kept.get(project);
    if (kept !== undefined) return kept;
    const salt = createHmac("sha256", this.#pepper)
      .update(`prefix cache of ${project}`)
      .digest("base64url");
    if (this.#kept.size >= MAX_KEPT) this.#kept.clear();
    this.#kept.set(project, salt);
    return salt;
  }
}
