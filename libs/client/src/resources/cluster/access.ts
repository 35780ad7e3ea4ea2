import type {
  AccessMethods,
  AccessPolicy,
  AccessPolicySettings,
  Binding,
  BindingSpec,
  CallerView,
} from "@heddle/contracts/api/access/bindings";
import type { RoleSettings, RoleView } from "@heddle/contracts/api/access/roles";
import type {
  ServiceAccount,
  ServiceAccountSettings,
} from "@heddle/contracts/api/access/service-accounts";
import type { SignedIn, SignInLink } from "@heddle/contracts/api/access/sign-in";
import { Pages } from "../../pages.ts";
import { pathPart } from "../../path-part.ts";
import type { CallOptions, ChangeOptions, HttpTransport } from "../../transport.ts";

/** Service accounts: `heddle.serviceAccounts`. */
export class ServiceAccounts {
  readonly #transport: HttpTransport;

  constructor(transport: HttpTransport) {
    this.#transport = transport;
  }

  list(options: CallOptions = {}): Pages<ServiceAccount> {
    return new Pages(this.#transport, "/service-accounts", {}, options);
  }

  get(name: string, { signal }: CallOptions = {}): Promise<ServiceAccount> {
    return this.#transport.json({ method: "GET", path: servicePath(name), signal });
  }

  /** Creates or changes a service account; while it is disabled, its keys are refused. */
  set(
    name: string,
    settings: ServiceAccountSettings = {},
    options: ChangeOptions = {},
  ): Promise<ServiceAccount> {
    const path = servicePath(name);
    return this.#transport.change({ method: "PUT", path, body: settings }, options);
  }

  /** Removes a service account without valid keys, and its roles. */
  remove(name: string, { signal }: CallOptions = {}): Promise<ServiceAccount> {
    return this.#transport.json({ method: "DELETE", path: servicePath(name), signal });
  }
}

function servicePath(name: string): string {
  return `/service-accounts/${pathPart(name)}`;
}

/** Roles: `heddle.roles`. */
export class Roles {
  readonly #transport: HttpTransport;

  constructor(transport: HttpTransport) {
    this.#transport = transport;
  }

  /** The roles of every cluster, then the cluster's own. */
  list(options: CallOptions = {}): Pages<RoleView> {
    return new Pages(this.#transport, "/roles", {}, options);
  }

  get(name: string, { signal }: CallOptions = {}): Promise<RoleView> {
    return this.#transport.json({ method: "GET", path: rolePath(name), signal });
  }

  /** Creates or replaces a role of the cluster's own. */
  set(name: string, settings: RoleSettings, options: ChangeOptions = {}): Promise<RoleView> {
    const path = rolePath(name);
    return this.#transport.change({ method: "PUT", path, body: settings }, options);
  }

  /** Removes a role that nothing names. */
  remove(name: string, { signal }: CallOptions = {}): Promise<RoleView> {
    return this.#transport.json({ method: "DELETE", path: rolePath(name), signal });
  }
}

function rolePath(name: string): string {
  return `/roles/${pathPart(name)}`;
}

/** Who has which role: `heddle.bindings`. */
export class RoleBindings {
  readonly #transport: HttpTransport;

  constructor(transport: HttpTransport) {
    this.#transport = transport;
  }

  /** The bindings of a subject, a role or a project; all without a filter. */
  list(filter: Partial<BindingSpec> = {}, options: CallOptions = {}): Pages<Binding> {
    return new Pages(this.#transport, "/bindings", { ...filter }, options);
  }

  /** Gives a role to a user, group or key. */
  add(binding: BindingSpec, options: ChangeOptions = {}): Promise<Binding> {
    return this.#transport.change({ method: "POST", path: "/bindings", body: binding }, options);
  }

  /** Takes a role from a user, group or key. */
  remove(binding: BindingSpec, { signal }: CallOptions = {}): Promise<Binding> {
    const query = { ...binding };
    const path = "/bindings";
    return this.#transport.json({ method: "DELETE", path, query, signal, isRepeatable: true });
  }
}

/** The access policy, and who calls: `heddle.access`. */
export class Access {
  readonly #transport: HttpTransport;

  constructor(transport: HttpTransport) {
    this.#transport = transport;
  }

  /** How callers prove who they are; it needs no key. */
  methods({ signal }: CallOptions = {}): Promise<AccessMethods> {
    return this.#transport.json({ method: "GET", path: "/access/methods", signal });
  }

  /** The default role and the roles of administrators. */
  policy({ signal }: CallOptions = {}): Promise<AccessPolicy> {
    return this.#transport.json({ method: "GET", path: "/access/policy", signal });
  }

  /** Absent settings get their defaults. */
  setPolicy(settings: AccessPolicySettings, options: ChangeOptions = {}): Promise<AccessPolicy> {
    const path = "/access/policy";
    return this.#transport.change({ method: "PUT", path, body: settings }, options);
  }

  /** A code that signs a browser in as this client, once, at the master that answers. */
  createSignInLink({ signal }: CallOptions = {}): Promise<SignInLink> {
    return this.#transport.json({ method: "POST", path: "/access/sign-in-links", signal });
  }

  /** Redeems the code of such a link; it needs no key. */
  signIn(code: string, { signal }: CallOptions = {}): Promise<SignedIn> {
    const body = { code };
    return this.#transport.json({ method: "POST", path: "/access/sign-in", body, signal });
  }

  /** Who this client is for the cluster, and what it may do. */
  whoami({ signal }: CallOptions = {}): Promise<CallerView> {
    return this.#transport.json({ method: "GET", path: "/access/whoami", signal });
  }
}
