import type { KeyObject } from "node:crypto";
import { NO_SECRET_KEYS, SecretKeys } from "@heddle/base/secret-keys";
import type { NodeCredentials } from "@heddle/rpc/credentials";
import type { DynamicModule } from "@nestjs/common";
import { AccessSeed } from "./access-seed.ts";
import { CONTROL_PLANE, type ControlPlane } from "./control-plane.ts";
import { ProjectSecrets } from "./project-secrets.ts";

/** The injection token of the secret that all masters share. */
export const PEPPER = Symbol("pepper");
/** The injection token of this master's NodeCredentials, with its cluster. */
export const CREDENTIALS = Symbol("NodeCredentials");
/** The injection token of the hash in join tokens; null without TLS. */
export const AUTHORITY_HASH = Symbol("authority hash");

/** The replicated state once this master takes part, and its identity towards nodes. */
export interface OpenControlPlane {
  readonly control: ControlPlane;
  readonly pepper: KeyObject;
  readonly credentials: NodeCredentials;
  /** Keys that encrypt what this master writes to its disk; without them it is in clear. */
  readonly keys?: SecretKeys | undefined;
  /** The hash of the authority that signs the nodes' certificates; undefined without TLS. */
  readonly authorityHash: string | undefined;
}

class ControlPlaneModule {}

/** The control plane for all other modules; the raft member that opened it closes it after them. */
export function controlPlaneModule(open: OpenControlPlane): DynamicModule {
  const providers = [
    { provide: CONTROL_PLANE, useValue: open.control },
    { provide: PEPPER, useValue: open.pepper },
    { provide: CREDENTIALS, useValue: open.credentials },
    { provide: SecretKeys, useValue: open.keys ?? NO_SECRET_KEYS },
    { provide: AUTHORITY_HASH, useValue: open.authorityHash ?? null },
    ProjectSecrets,
    AccessSeed,
  ];
  return { module: ControlPlaneModule, global: true, providers, exports: providers };
}
