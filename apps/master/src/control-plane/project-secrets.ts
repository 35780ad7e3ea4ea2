import { AppError } from "@heddle/base/errors";
import { HiddenValues } from "@heddle/base/hidden-values";
import { SecretKeys } from "@heddle/base/secret-keys";
import type { SubmitJob } from "@heddle/contracts/api/job-spec";
import { secretsKeyOf } from "@heddle/control/cluster-version";
import { type SecretRecord, secretKey } from "@heddle/control/secrets/records";
import type { ControlState } from "@heddle/control/state";
import { Inject } from "@nestjs/common";
import { CONTROL_PLANE, type ControlPlane } from "./control-plane.ts";

type Sealed = Pick<SecretRecord, "sealed" | "key">;
type SecretName = Pick<SecretRecord, "project" | "name">;

/** Encrypts and decrypts the values of projects' secrets. The state has ciphertext alone. */
export class ProjectSecrets {
  readonly #state: () => Pick<ControlState, "secrets" | "cluster">;
  readonly #keys: SecretKeys;
  /** Records are replaced when they change. */
  readonly #values = new WeakMap<SecretRecord, string>();

  constructor(
    @Inject(CONTROL_PLANE) control: Pick<ControlPlane, "state">,
    @Inject(SecretKeys) keys: SecretKeys,
  ) {
    this.#state = () => control.state;
    this.#keys = keys;
  }

  /** Throws `conflict` in a cluster whose masters have no secrets key. */
  seal(name: SecretName, value: string): Sealed {
    const key = secretsKeyOf(this.#state());
    if (key === undefined) {
      const message =
        "The masters have no secrets key, and store no secret in clear. Start all of them with --secrets-key-file; docs/guide/secrets.md says how.";
      throw new AppError("conflict", message);
    }
    return {
      sealed: this.#keys.seal(Buffer.from(value), purposeOf(name), key).toString("base64"),
      key,
    };
  }

  /** The record's value under the present key; undefined if it is. */
  resealed(record: SecretRecord): Sealed | undefined {
    const key = secretsKeyOf(this.#state());
    return key === undefined || key === record.key
      ? undefined
      : this.seal(record, this.#open(record));
  }

  get all(): Iterable<SecretRecord> {
    return this.#state().secrets.values();
  }

  /** The variables of a job that come from secrets, with their present values. */
  variables({ project, secret_variables: named = {} }: VariablesOf): Record<string, string> {
    const { secrets } = this.#state();
    const variables = Object.entries(named).map(([variable, name]) => {
      const record = secrets.get(secretKey({ project, name }));
      if (record) return [variable, this.#open(record)];
      throw new AppError("not_found", `the project ${project} has no secret ${name}`);
    });
    return Object.fromEntries(variables);
  }

  /** What a job's output must not show: the present values of its secrets. */
  hiddenOf({ project, secret_variables: named = {} }: VariablesOf): HiddenValues {
    const { secrets } = this.#state();
    const values = Object.values(named).flatMap((name) => {
      const record = secrets.get(secretKey({ project, name }));
      try {
        return record ? [this.#open(record)] : [];
      } catch {
        return []; // What does not decrypt was given to no task.
      }
    });
    return new HiddenValues(values);
  }

  #open(record: SecretRecord): string {
    const known = this.#values.get(record);
    if (known !== undefined) return known;
    const bytes = Buffer.from(record.sealed, "base64");
    const value = Buffer.from(this.#keys.open(bytes, purposeOf(record))).toString();
    this.#values.set(record, value);
    return value;
  }
}

type VariablesOf = Pick<SubmitJob, "project" | "secret_variables">;

/** A value that is copied to another name or project does not decrypt. */
function purposeOf({ project, name }: SecretName): `job secret ${string}` {
  return `job secret ${project}/${name}`;
}
