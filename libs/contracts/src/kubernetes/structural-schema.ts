import { isJsonObject } from "@heddle/base/json-object";
import { z } from "zod";

/** A JSON Schema, or a structural schema of Kubernetes. */
export type SchemaNode = { readonly [field: string]: unknown };

/** Fields that mean the same in both. */
const KEPT = [
  "type",
  "description",
  "enum",
  "minimum",
  "maximum",
  "minLength",
  "maxLength",
  "minItems",
  "maxItems",
] as const;
/** Kubernetes uses RE2, which knows no groups that look around. */
const LOOK_AROUND = /\(\?[=!<]/;
/** zod's bounds of a safe integer, which say nothing. */
const SAFE = Number.MAX_SAFE_INTEGER;

/**
 * The structural schema of a zod schema's input. Kubernetes has no alternatives with properties of
 * their own: any value passes there, of their type if they share one, and the API decides.
 */
export function structuralSchema(schema: z.ZodType): SchemaNode {
  const options = { io: "input", unrepresentable: "any", reused: "inline" } as const;
  const root = z.toJSONSchema(schema, options) as SchemaNode;
  return structural(root, root);
}

/** References are resolved in the root. */
function structural(given: SchemaNode, root: SchemaNode): SchemaNode {
  const node = resolved(given, root);
  const { required } = node;
  const alternatives = node["anyOf"] ?? node["oneOf"] ?? node["allOf"];
  const description = node["description"] ?? given["description"];
  const about = description === undefined ? {} : { description };
  if (node["const"] !== undefined) {
    return { type: typeof node["const"], enum: [node["const"]], ...about };
  }
  const type = node["type"] ?? commonType(alternatives, root);
  if (type === undefined) return { ...about, "x-kubernetes-preserve-unknown-fields": true };
  if (alternatives !== undefined) return { type, ...about };
  const kept = KEPT.flatMap((name) => (node[name] === undefined ? [] : [[name, node[name]]]));
  const result: Record<string, unknown> = { ...Object.fromEntries(kept), ...about };
  if (result["maximum"] === SAFE) delete result["maximum"];
  if (result["minimum"] === -SAFE) delete result["minimum"];
  if (node["exclusiveMinimum"] !== undefined) {
    result["minimum"] = node["exclusiveMinimum"];
    result["exclusiveMinimum"] = true;
  }
  const { pattern } = node;
  if (typeof pattern === "string" && !LOOK_AROUND.test(pattern)) result["pattern"] = pattern;
  if (isNode(node["items"])) {
    result["items"] = structural(node["items"], root);
  }
  if (node["type"] === "object") addFields(result, node, root);
  if (Array.isArray(required) && required.length > 0) result["required"] = required;
  return result;
}

/** The type that all of them have, if it has no parts: a rule compares only a field whose type is known. */
function commonType(alternatives: unknown, root: SchemaNode): unknown {
  const nodes = Array.isArray(alternatives) ? alternatives : [];
  const types = new Set(nodes.map((each) => resolved(nodeOf(each), root)["type"]));
  const [type] = types;
  return types.size === 1 && type !== "object" && type !== "array" ? type : undefined;
}

function addFields(result: Record<string, unknown>, node: SchemaNode, root: SchemaNode): void {
  const { properties, additionalProperties } = node;
  if (isNode(properties)) {
    result["properties"] = Object.fromEntries(
      Object.entries(properties).map(([name, property]) => [
        name,
        structural(nodeOf(property), root),
      ]),
    );
    return;
  }
  const values = structural(nodeOf(additionalProperties), root);
  const isOpen = values["x-kubernetes-preserve-unknown-fields"] === true;
  if (isOpen) result["x-kubernetes-preserve-unknown-fields"] = true;
  else result["additionalProperties"] = values;
}

function resolved(node: SchemaNode, root: SchemaNode): SchemaNode {
  const reference = node["$ref"];
  if (typeof reference !== "string") return node;
  const name = reference.replace("#/$defs/", "");
  return nodeOf(nodeOf(root["$defs"])[name]);
}

function nodeOf(value: unknown): SchemaNode {
  return isNode(value) ? value : {};
}

function isNode(value: unknown): value is SchemaNode {
  return isJsonObject(value);
}
