import { SCOPES_MODELS, versionOf } from "./cluster-version.ts";
import type { ControlState, ModelRecord } from "./state.ts";

/**
 * The key of a model in the state. The ids of a project's models are its own: another project may
 * use the same, and learns nothing of them.
 */
export function modelKey(
  state: Pick<ControlState, "cluster">,
  id: string,
  project: string | undefined,
): string {
  return project === undefined || versionOf(state) < SCOPES_MODELS ? id : `${project} ${id}`;
}

/** The model that the id names in a project: its own, or one of the whole cluster. */
export function modelIn(
  state: Pick<ControlState, "cluster" | "models">,
  id: string,
  project: string | undefined,
): ModelRecord | undefined {
  return state.models.get(modelKey(state, id, project)) ?? state.models.get(id);
}

/** The project whose model it is; undefined for one of the whole cluster. */
export function projectOfModel({ project, lineage }: ModelRecord): string | undefined {
  return project ?? lineage?.project;
}

/** The project of all models that the deployment serves; undefined where it is not one. */
export function projectOfDeployment(
  { models }: Pick<ControlState, "models">,
  key: string,
): string | undefined {
  const served = [...models.values()].filter(({ deployment }) => deployment === key);
  const [project, ...others] = new Set(served.map(projectOfModel));
  return others.length === 0 ? project : undefined;
}

/** Gives the models of projects, until now under their ids alone, their keys. */
export function scopeModels(state: Pick<ControlState, "cluster" | "models">): void {
  for (const [key, model] of [...state.models]) {
    if (model.project === undefined) continue;
    state.models.delete(key);
    state.models.set(modelKey(state, model.id, model.project), model);
  }
}
