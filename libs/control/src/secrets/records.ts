/** A secret of a project; its value is only in here as ciphertext. */
export interface SecretRecord {
  readonly project: string;
  readonly name: string;
  /** Incremented with each new value. */
  readonly version: number;
  /** The value, encrypted for the project and the name; base64. */
  readonly sealed: string;
  /** The id of the secrets key that encrypts it. */
  readonly key: string;
  readonly createdAtMs: number;
  readonly updatedAtMs: number;
}

interface SecretName {
  readonly project: string;
  readonly name: string;
}

type Sealed = Pick<SecretRecord, "sealed" | "key">;

/** Changes of secrets. */
export type SecretCommand =
  | ({ readonly type: "secret.set"; readonly atMs: number } & SecretName & Sealed)
  | ({ readonly type: "secret.remove"; readonly atMs: number } & SecretName)
  /** The value of this version under another secrets key. */
  | ({
      readonly type: "secret.reseal";
      readonly atMs: number;
      readonly version: number;
    } & SecretName &
      Sealed);

/** The key of a secret in the state. */
export function secretKey({ project, name }: SecretName): string {
  return `${project}/${name}`;
}
