import { AppError } from "@heddle/base/errors";
import type { ElementType, Shape } from "@heddle/training/ir/value";
import { elementCount } from "@heddle/training/ir/value";

/** The feed of a name, or an AppError `invalid_value` where it is missing or misshapen. */
export function checkedFeed(
  name: string,
  shape: Shape,
  type: ElementType,
  data: Float32Array | Int32Array | undefined,
): Float32Array | Int32Array {
  const kind = type === "f32" ? Float32Array : Int32Array;
  if (data instanceof kind && data.length === elementCount(shape)) return data;
  const got = data === undefined ? "nothing" : `a ${data.constructor.name} of ${data.length}`;
  const message = `the input ${name} wants a ${kind.name} of shape [${shape.join()}], got ${got}`;
  throw new AppError("invalid_value", message);
}
