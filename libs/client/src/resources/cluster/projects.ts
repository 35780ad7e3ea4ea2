import type { Project, ProjectSettings } from "@heddle/contracts/api/projects";
import { Pages } from "../../pages.ts";
import { pathPart } from "../../path-part.ts";
import type { CallOptions, ChangeOptions, HttpTransport } from "../../transport.ts";

/** Projects: `heddle.projects`. A project that a job names exists without being created. */
export class Projects {
  readonly #transport: HttpTransport;

  constructor(transport: HttpTransport) {
    this.#transport = transport;
  }

  list(options: CallOptions = {}): Pages<Project> {
    return new Pages(this.#transport, "/projects", {}, options);
  }

  get(name: string, { signal }: CallOptions = {}): Promise<Project> {
    return this.#transport.json({ method: "GET", path: pathOf(name), signal });
  }

  /** Replaces the settings of the project; absent ones get their defaults. */
  set(name: string, settings: ProjectSettings, options: ChangeOptions = {}): Promise<Project> {
    return this.#transport.change({ method: "PUT", path: pathOf(name), body: settings }, options);
  }
}

function pathOf(name: string): string {
  return `/projects/${pathPart(name)}`;
}
