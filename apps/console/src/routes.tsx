import { retry } from "@heddle/base/async/retry";
import {
  createRootRoute,
  createRoute,
  createRouter,
  type ErrorComponentProps,
  Link,
  lazyRouteComponent,
} from "@tanstack/react-router";
import { OverviewPage } from "./overview/overview-page.tsx";
import { Shell } from "./shell.tsx";
import { STRINGS } from "./strings.ts";
import { ErrorNote } from "./ui/error-note.tsx";
import { Waiting } from "./ui/parts.tsx";

const root = createRootRoute({ component: Shell, notFoundComponent: NotFound });

function NotFound() {
  return (
    <div className="page">
      <h1>{STRINGS.common.notFound}</h1>
      <Link to="/">{STRINGS.common.toOverview}</Link>
    </div>
  );
}

/** A page that cannot be shown, in the frame of all pages. */
function PageError({ error }: ErrorComponentProps) {
  return (
    <div className="page">
      <ErrorNote error={error} />
      <div className="buttons start">
        <button type="button" onClick={() => void loadPages().then(() => router.invalidate())}>
          {STRINGS.common.retry}
        </button>
      </div>
    </div>
  );
}

function PageLoading() {
  return (
    <div className="page">
      <Waiting error={undefined} />
    </div>
  );
}

const LOADING = { backoff: { baseMs: 500, maxMs: 2_000 }, deadlineMs: 20_000 };

/** A page by its code. The router itself would reload the tab where it has none, and end its session. */
function page<Code extends Record<string, unknown>, Name extends keyof Code>(
  load: () => Promise<Code>,
  name: Name,
) {
  const code = () =>
    retry(load, LOADING).catch((cause: unknown) => {
      throw new Error(STRINGS.common.noCode, { cause });
    });
  return lazyRouteComponent(code, name);
}

const text = (value: unknown) => (typeof value === "string" && value !== "" ? value : undefined);

const routeTree = root.addChildren([
  createRoute({
    getParentRoute: () => root,
    path: "/gpus",
    component: page(() => import("./gpus/gpus-page.tsx"), "GpusPage"),
  }),
  createRoute({
    getParentRoute: () => root,
    path: "/usage",
    component: page(() => import("./usage/usage-page.tsx"), "UsagePage"),
  }),
  createRoute({
    getParentRoute: () => root,
    path: "/events",
    component: page(() => import("./events/events-page.tsx"), "EventsPage"),
    validateSearch: (search: Record<string, unknown>) => ({ part: text(search["part"]) }),
  }),
  createRoute({
    getParentRoute: () => root,
    path: "/control-plane",
    component: page(() => import("./control-plane/control-plane-page.tsx"), "ControlPlanePage"),
  }),
  createRoute({
    getParentRoute: () => root,
    path: "/panels",
    component: page(() => import("./plugins/panels-page.tsx"), "PanelsPage"),
  }),
  createRoute({
    getParentRoute: () => root,
    path: "/settings",
    component: page(() => import("./settings/settings-page.tsx"), "SettingsPage"),
  }),
  createRoute({ getParentRoute: () => root, path: "/", component: OverviewPage }),
  createRoute({
    getParentRoute: () => root,
    path: "/nodes",
    component: page(() => import("./nodes/nodes-page.tsx"), "NodesPage"),
  }),
  createRoute({
    getParentRoute: () => root,
    path: "/nodes/$id",
    component: page(() => import("./nodes/node-page.tsx"), "NodePage"),
  }),
  createRoute({
    getParentRoute: () => root,
    path: "/submit",
    component: page(() => import("./submit/submit-page.tsx"), "SubmitPage"),
    validateSearch: (search: Record<string, unknown>) => ({ from: text(search["from"]) }),
  }),
  createRoute({
    getParentRoute: () => root,
    path: "/models",
    component: page(() => import("./models/models-page.tsx"), "ModelsPage"),
  }),
  createRoute({
    getParentRoute: () => root,
    path: "/playground",
    component: page(() => import("./playground/playground-page.tsx"), "PlaygroundPage"),
  }),
  createRoute({
    getParentRoute: () => root,
    path: "/jobs",
    component: page(() => import("./jobs/jobs-page.tsx"), "JobsPage"),
    validateSearch: (search: Record<string, unknown>) => ({
      state: text(search["state"]),
      name: text(search["name"]),
      project: text(search["project"]),
      label: text(search["label"]),
    }),
  }),
  createRoute({
    getParentRoute: () => root,
    path: "/jobs/$id",
    component: page(() => import("./jobs/job-page.tsx"), "JobPage"),
    validateSearch: (search: Record<string, unknown>) => ({ part: text(search["part"]) }),
  }),
]);

export const router = createRouter({
  routeTree,
  basepath: "/console",
  defaultPreload: "intent",
  defaultErrorComponent: PageError,
  defaultPendingComponent: PageLoading,
});

/** Loads the code of all pages, so that they open while a master is down. Never rejects. */
export async function loadPages(): Promise<void> {
  const pages = Object.values(router.routesById).map(({ options }) => options.component);
  await Promise.all(pages.map((each) => each?.preload?.()));
}

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
}
