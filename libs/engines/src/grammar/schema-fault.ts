import { AppError } from "@heddle/base/errors";

/** A schema that cannot be compiled, and where. */
export class SchemaFault extends Error {
  /** A JSON pointer into the schema; empty for the whole of it. */
  readonly pointer: string;

  constructor(pointer: string, reason: string) {
    super(reason);
    this.pointer = pointer;
  }

  /** The same as the error of a request's parameter. */
  toAppError(param: string): AppError {
    const place = this.pointer === "" ? "the schema" : `the schema at ${this.pointer}`;
    return new AppError(
      "invalid_value",
      `Invalid value for '${param}': ${place}: ${this.message}.`,
      {
        param,
      },
    );
  }
}

/** The pointer one member further on. */
export function under(pointer: string, ...members: readonly (string | number)[]): string {
  return members.reduce<string>(
    (path, member) => `${path}/${String(member).replaceAll("~", "~0").replaceAll("/", "~1")}`,
    pointer,
  );
}
