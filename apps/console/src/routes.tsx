import {
  createRootRoute,
  createRoute,
  createRouter,
  Link,
  lazyRouteComponent,
} from "@tanstack/react-router";
import { OverviewPage } from "./overview/overview-page.tsx";
import { Shell } from "./shell.tsx";
import { STRINGS } from "./strings.ts";

const root = createRootRoute({ component: Shell, notFoundComponent: NotFound });

function NotFound() {
  return (
    <div className="page">
      <h1>{STRINGS.common.notFound}</h1>
      <Link to="/">{STRINGS.common.toOverview}</Link>
    </div>
  );
}

const text = (value: unknown) => (typeof value === "string" && value !== "" ? value : undefined);

const routeTree = root.addChildren([
  createRoute({
    getParentRoute: () => root,
    path: "/gpus",
    component: lazyRouteComponent(() => import("./gpus/gpus-page.tsx"), "GpusPage"),
  }),
  createRoute({
    getParentRoute: () => root,
    path: "/usage",
    component: lazyRouteComponent(() => import("./usage/usage-page.tsx"), "UsagePage"),
  }),
  createRoute({
    getParentRoute: () => root,
    path: "/events",
    component: lazyRouteComponent(() => import("./events/events-page.tsx"), "EventsPage"),
    validateSearch: (search: Record<string, unknown>) => ({ part: text(search["part"]) }),
  }),
  createRoute({
    getParentRoute: () => root,
    path: "/control-plane",
    component: lazyRouteComponent(
      () => import("./control-plane/control-plane-page.tsx"),
      "ControlPlanePage",
    ),
  }),
  createRoute({
    getParentRoute: () => root,
    path: "/panels",
    component: lazyRouteComponent(() => import("./plugins/panels-page.tsx"), "PanelsPage"),
  }),
  createRoute({
    getParentRoute: () => root,
    path: "/settings",
    component: lazyRouteComponent(() => import("./settings/settings-page.tsx"), "SettingsPage"),
  }),
  createRoute({ getParentRoute: () => root, path: "/", component: OverviewPage }),
  createRoute({
    getParentRoute: () => root,
    path: "/nodes",
    component: lazyRouteComponent(() => import("./nodes/nodes-page.tsx"), "NodesPage"),
  }),
  createRoute({
    getParentRoute: () => root,
    path: "/nodes/$id",
    component: lazyRouteComponent(() => import("./nodes/node-page.tsx"), "NodePage"),
  }),
  createRoute({
    getParentRoute: () => root,
    path: "/submit",
    component: lazyRouteComponent(() => import("./submit/submit-page.tsx"), "SubmitPage"),
    validateSearch: (search: Record<string, unknown>) => ({ from: text(search["from"]) }),
  }),
  createRoute({
    getParentRoute: () => root,
    path: "/models",
    component: lazyRouteComponent(() => import("./models/models-page.tsx"), "ModelsPage"),
  }),
  createRoute({
    getParentRoute: () => root,
    path: "/playground",
    component: lazyRouteComponent(
      () => import("./playground/playground-page.tsx"),
      "PlaygroundPage",
    ),
  }),
  createRoute({
    getParentRoute: () => root,
    path: "/jobs",
    component: lazyRouteComponent(() => import("./jobs/jobs-page.tsx"), "JobsPage"),
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
    component: lazyRouteComponent(() => import("./jobs/job-page.tsx"), "JobPage"),
    validateSearch: (search: Record<string, unknown>) => ({ part: text(search["part"]) }),
  }),
]);

export const router = createRouter({
  routeTree,
  basepath: "/console",
  defaultPreload: "intent",
});

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
}
