import type { ApiKeyRecord, ControlState, DeploymentRecord, ModelRecord } from "./state.ts";

/** The replicated state as plain JSON, in insertion order, with the version of its layout. */
export interface ControlSnapshot {
  readonly version: 1;
  readonly keys: readonly ApiKeyRecord[];
  readonly models: readonly ModelRecord[];
  readonly deployments: readonly DeploymentRecord[];
}

export function toSnapshot(state: ControlState): ControlSnapshot {
  return {
    version: 1,
    keys: [...state.keys.values()],
    models: [...state.models.values()],
    deployments: [...state.deployments.values()],
  };
}

/** The state of a snapshot. Throws where the layout is of a version that this master does not know. */
export function fromSnapshot(snapshot: ControlSnapshot): ControlState {
  if (snapshot.version !== 1) {
    throw new Error(`a snapshot of layout ${snapshot.version} needs a newer master`);
  }
  return {
    keys: new Map(snapshot.keys.map((key) => [key.id, key])),
    models: new Map(snapshot.models.map((model) => [model.id, model])),
    deployments: new Map(snapshot.deployments.map((record) => [record.spec.key, record])),
  };
}
