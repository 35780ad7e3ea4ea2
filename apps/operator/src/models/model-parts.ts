import {
  type Model,
  type ModelScale,
  modelOperations,
  registerModelRequest,
} from "@heddle/contracts/api/models";
import type { InferenceModelSpec } from "@heddle/contracts/kubernetes/custom-resources";

type ModelSpec = Omit<InferenceModelSpec, "id">;

/** Fields that a spec and the HTTP view of its model both have, under the same names. */
const FIELDS = [
  "family",
  "context_window",
  "availability",
  "intended_use",
  "owned_by",
  "capabilities",
] as const satisfies readonly (keyof ModelSpec & keyof Model)[];

/** What a spec and its model both show. Each part changes as a whole. */
type ModelParts = Readonly<Record<(typeof FIELDS)[number], unknown>> & {
  /** Undefined where nothing is said of it. */
  readonly scale: ModelScale | undefined;
};

const { shape } = registerModelRequest;
const scaleSchema = modelOperations.scale.body;

export function partsOfSpec(spec: ModelSpec): ModelParts {
  const { replicas, scaling, adapter } = spec;
  const isSaid = !adapter && (replicas !== undefined || scaling !== undefined);
  const said = scaling === undefined ? { replicas } : { scaling };
  const scale = isSaid ? scaleSchema.parse(said) : undefined;
  return { ...fieldsOf((name) => shape[name].parse(spec[name])), scale };
}

export function partsOfModel(model: Model): ModelParts {
  // The replicas of an adapter are its base's.
  const scale = model.adapter ? undefined : scaleSchema.parse(scaleOfModel(model));
  return { ...fieldsOf((name) => model[name]), scale };
}

/** Part by part what the spec says, if it has changed since both agreed, and else what the model has. */
export function mergedParts(spec: ModelParts, model: ModelParts, agreed = "{}"): ModelParts {
  const last = JSON.parse(agreed) as Partial<ModelParts>;
  const names = [...FIELDS, "scale"] as const;
  const merged = names.map((name) => {
    const isNewer = spec[name] !== undefined && !isEqual(spec[name], last[name]);
    return [name, isNewer ? spec[name] : model[name]];
  });
  return Object.fromEntries(merged) as ModelParts;
}

/** The merge patch that makes the spec equal to the model; null removes a field. Undefined if they are equal. */
export function specPatch(spec: ModelSpec, model: Model): object | undefined {
  const present = partsOfSpec(spec);
  const wanted = partsOfModel(model);
  const changed = FIELDS.filter((name) => !isEqual(present[name], wanted[name]));
  const patch = {
    ...Object.fromEntries(changed.map((name) => [name, wanted[name]])),
    ...(wanted.scale && scalePatch(spec, present.scale, wanted.scale, model.wanted_replicas)),
  };
  return Object.keys(patch).length > 0 ? patch : undefined;
}

function scalePatch(
  { replicas }: ModelSpec,
  present: ModelScale | undefined,
  { scaling }: ModelScale,
  wanted: Model["wanted_replicas"],
): object {
  // With bounds the number is what the load asks for.
  const count = typeof wanted === "number" ? wanted : undefined;
  return {
    ...(replicas !== count && { replicas: count ?? null }),
    ...(!isEqual(present?.scaling, scaling) && {
      scaling: scaling ? { idle_unload_s: null, ...scaling } : null,
    }),
  };
}

/** The same text for equal parts. */
export function partsText(parts: object | undefined): string {
  return JSON.stringify(parts);
}

function isEqual(left: unknown, right: unknown): boolean {
  return JSON.stringify(left) === JSON.stringify(right);
}

function fieldsOf(of: (name: (typeof FIELDS)[number]) => unknown) {
  const values = FIELDS.map((name) => [name, of(name)]);
  return Object.fromEntries(values) as Omit<ModelParts, "scale">;
}

function scaleOfModel({ scaling, wanted_replicas: replicas }: Model): ModelScale {
  if (!scaling) return { replicas };
  const { scaled_at: _, reason: __, idle_unload_s, ...bounds } = scaling;
  return { scaling: { ...bounds, ...(idle_unload_s !== null && { idle_unload_s }) } };
}
