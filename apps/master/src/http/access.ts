import type { KeyVerifier } from "@heddle/auth/key-verifier";
import { grants } from "@heddle/auth/scopes";
import { AppError } from "@heddle/base/errors";
import type { Permission } from "@heddle/contracts/keys";
import type { ApiKeyRecord } from "@heddle/control/state";
import type { CanActivate, ExecutionContext } from "@nestjs/common";
import type { FastifyRequest } from "fastify";
import type { LastUsed } from "./last-used.ts";

/** A request after the guard: `apiKey` is who calls, null on public routes only. */
export interface CallerRequest extends FastifyRequest {
  apiKey: ApiKeyRecord | null;
}

const PERMISSION = Symbol("heddle.permission");

/**
 * Declares what a route's caller must be granted: a permission such as `models:deploy`,
 * `authenticated` for any valid key, or `public`. A route without it is denied to everyone.
 */
export function Permit(
  permission: Permission | "public" | "authenticated",
  summary: string,
): MethodDecorator {
  return (_target, _name, descriptor) => {
    Object.assign(descriptor.value as object, { [PERMISSION]: { permission, summary } });
    return descriptor;
  };
}

export function permissionOf(handler: object): { permission: string | undefined; summary: string } {
  const declared = (handler as { [PERMISSION]?: { permission: string; summary: string } })[
    PERMISSION
  ];
  return declared ?? { permission: undefined, summary: "" };
}

/** Authenticates and authorises every call. A guard, not middleware, so that no path slips by. */
export class AccessGuard implements CanActivate {
  readonly #verifier: KeyVerifier<ApiKeyRecord>;
  readonly #lastUsed: LastUsed;

  constructor(verifier: KeyVerifier<ApiKeyRecord>, lastUsed: LastUsed) {
    this.#verifier = verifier;
    this.#lastUsed = lastUsed;
  }

  canActivate(context: ExecutionContext): boolean {
    const { permission } = permissionOf(context.getHandler());
    if (permission === "public") return true;
    const request = context.switchToHttp().getRequest<CallerRequest>();
    const key = this.#authenticate(request.headers.authorization);
    if (permission === undefined) {
      throw new AppError("permission_denied", "This route declares no permission and is denied.");
    }
    if (permission !== "authenticated" && !grants(key.scopes, permission)) {
      const message = `The API key ${key.id} lacks the permission ${permission}.`;
      throw new AppError("permission_denied", message);
    }
    request.apiKey = key;
    this.#lastUsed.touch(key.id);
    return true;
  }

  #authenticate(header: string | undefined): ApiKeyRecord {
    if (header === undefined || header === "") {
      const message = "No API key was given. Send the header `Authorization: Bearer <API_KEY>`.";
      throw new AppError("invalid_api_key", message);
    }
    const token = /^bearer +(\S+) *$/i.exec(header)?.[1];
    if (token === undefined) {
      const message = "The Authorization header is not of the form `Bearer <API_KEY>`.";
      throw new AppError("invalid_api_key", message);
    }
    const verified = this.#verifier.verify(token);
    if (!verified.ok) throw new AppError("invalid_api_key", verified.message);
    return verified.key;
  }
}
