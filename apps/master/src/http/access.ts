import type { KeyVerifier } from "@heddle/auth/key-verifier";
import { grants } from "@heddle/auth/scopes";
import { AppError } from "@heddle/base/errors";
import type { Permission } from "@heddle/contracts/keys";
import type { ApiKeyRecord } from "@heddle/control/state";
import { RouteConfig } from "@nestjs/platform-fastify";
import type { FastifyReply, FastifyRequest } from "fastify";
import type { LastUsed } from "./last-used.ts";
import type { RouteInput } from "./route-input.ts";

/** A request after the access check: `apiKey` is who calls, null on public routes only. */
export interface CallerRequest extends FastifyRequest {
  apiKey: ApiKeyRecord | null;
}

/** What a route's Fastify config says of who may call it, and with what. */
export interface AccessConfig {
  readonly permission?: string;
  readonly input?: RouteInput;
}

/** Refuses a call whose key is known by throwing, before its body is read. */
export type AccessGate = (key: ApiKeyRecord, reply: FastifyReply) => void;

const PERMISSION = Symbol("heddle.permission");

/**
 * Declares what a route's caller must be granted: a permission such as `models:deploy`,
 * `authenticated` for any valid key, or `public`. A route without it is denied to everyone. One of
 * the orchestration API takes the input that is declared here, and refuses all other.
 */
export function Permit(
  permission: Permission | "public" | "authenticated",
  summary: string,
  input: RouteInput = {},
): MethodDecorator {
  const config: AccessConfig = { permission, input };
  const configure = RouteConfig(config);
  return (target, name, descriptor) => {
    Object.assign(descriptor.value as object, { [PERMISSION]: { permission, summary } });
    configure(target, name, descriptor);
    return descriptor;
  };
}

export function permissionOf(handler: object): { permission: string | undefined; summary: string } {
  const declared = (handler as { [PERMISSION]?: { permission: string; summary: string } })[
    PERMISSION
  ];
  return declared ?? { permission: undefined, summary: "" };
}

/**
 * Authenticates and authorises a call by its headers, before a byte of its body is read. The server
 * runs it ahead of each of its routes, also those that declare nothing, so that no path slips by.
 */
export class AccessCheck {
  readonly #verifier: KeyVerifier<ApiKeyRecord>;
  readonly #lastUsed: LastUsed;
  readonly #gates: ReadonlyMap<string, AccessGate>;

  /** `gates` hold further conditions, by the permission whose routes they stand before. */
  constructor(
    verifier: KeyVerifier<ApiKeyRecord>,
    lastUsed: LastUsed,
    gates: ReadonlyMap<string, AccessGate> = new Map(),
  ) {
    this.#verifier = verifier;
    this.#lastUsed = lastUsed;
    this.#gates = gates;
  }

  /** The check of the routes that need a permission; it throws what a call is refused with. */
  of(permission: string | undefined): (request: CallerRequest, reply: FastifyReply) => void {
    if (permission === "public") return () => undefined;
    const gate = permission === undefined ? undefined : this.#gates.get(permission);
    return (request, reply) => {
      const key = this.#authenticate(request.headers.authorization);
      authorize(key, permission);
      gate?.(key, reply);
      request.apiKey = key;
      this.#lastUsed.touch(key.id);
    };
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

function authorize(key: ApiKeyRecord, permission: string | undefined): void {
  if (permission === undefined) {
    throw new AppError("permission_denied", "This route declares no permission and is denied.");
  }
  if (permission !== "authenticated" && !grants(key.scopes, permission)) {
    const message = `The API key ${key.id} lacks the permission ${permission}.`;
    throw new AppError("permission_denied", message);
  }
}
