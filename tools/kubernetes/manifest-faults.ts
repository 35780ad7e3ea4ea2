import * as kubernetes from "@kubernetes/client-node";

/** A Kubernetes object as it is written. */
export interface Manifest {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: { readonly name: string; readonly namespace?: string };
  readonly [field: string]: unknown;
}

interface Model {
  getAttributeTypeMap(): readonly { readonly baseName: string; readonly type: string }[];
}

const MODELS = kubernetes as unknown as Readonly<Record<string, Model | undefined>>;
/** Types of the client whose values may have several forms. */
const ANY = new Set(["any", "object", "Date", "IntOrString", "Quantity"]);

/**
 * What is wrong with an object by the models of the Kubernetes client: unknown fields, other types.
 * Undefined for a kind that the client does not know, as one of a CRD.
 */
export function manifestFaults(manifest: Manifest): string[] | undefined {
  const { apiVersion, kind } = manifest;
  const version = apiVersion.split("/").at(-1) ?? "";
  const type = `${version.charAt(0).toUpperCase()}${version.slice(1)}${kind}`;
  return MODELS[type]?.getAttributeTypeMap ? faultsOf(manifest, type, kind) : undefined;
}

function faultsOf(value: unknown, type: string, path: string): string[] {
  if (value === null || value === undefined || ANY.has(type)) return [];
  const [, item] = /^Array<(.*)>$/.exec(type) ?? [];
  if (item !== undefined) {
    if (!Array.isArray(value)) return [`${path}: expected a list`];
    return value.flatMap((each, at) => faultsOf(each, item, `${path}[${at}]`));
  }
  const [, entry] = /^\{ \[key: string\]: (.*); \}$/.exec(type) ?? [];
  const isMap = typeof value === "object" && !Array.isArray(value);
  if (entry !== undefined) {
    if (!isMap) return [`${path}: expected a map`];
    return Object.entries(value).flatMap(([key, each]) => faultsOf(each, entry, `${path}.${key}`));
  }
  if (["string", "number", "boolean"].includes(type)) {
    return typeof value === type ? [] : [`${path}: expected a ${type}, got ${typeof value}`];
  }
  const model = MODELS[type];
  if (!model?.getAttributeTypeMap) return [];
  if (!isMap) return [`${path}: expected an object`];
  const fields = new Map(model.getAttributeTypeMap().map((each) => [each.baseName, each.type]));
  return Object.entries(value).flatMap(([key, each]) => {
    const known = fields.get(key);
    return known === undefined
      ? [`${path}.${key}: unknown field`]
      : faultsOf(each, known, `${path}.${key}`);
  });
}
