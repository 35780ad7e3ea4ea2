import { grants } from "@heddle/auth/scopes";
import type { Permission } from "@heddle/contracts/api/permission";
import { useQuery } from "@tanstack/react-query";
import { Link, Outlet, useRouterState } from "@tanstack/react-router";
import { useEffect, useRef, useState } from "react";
import { CALM_MS, selfQuery, statusQuery } from "./data/queries.ts";
import { usePanels } from "./plugins/use-panels.ts";
import { useMay, useSelf, useSession } from "./session/session.ts";
import { STRINGS } from "./strings.ts";
import { PageHead } from "./ui/parts.tsx";
import { StatusBadge } from "./ui/status-badge.tsx";
import { applyTheme, chosenTheme, type ThemeChoice } from "./ui/theme.ts";

/** The pages in the navigation, and the permission that each needs. */
const PAGES = [
  ["/", STRINGS.pages.overview, undefined],
  ["/nodes", STRINGS.pages.nodes, "cluster:read"],
  ["/gpus", STRINGS.pages.gpus, "cluster:read"],
  ["/jobs", STRINGS.pages.jobs, "jobs:read"],
  ["/models", STRINGS.pages.models, "models:read"],
  ["/playground", STRINGS.pages.playground, "inference:create"],
  ["/usage", STRINGS.pages.usage, "cluster:read"],
  ["/events", STRINGS.pages.events, "jobs:read"],
  ["/control-plane", STRINGS.pages.controlPlane, "cluster:read"],
  ["/settings", STRINGS.pages.settings, undefined],
] as const;

/** Offered where a plugin has one. */
const PANELS = ["/panels", STRINGS.pages.panels, undefined] as const;
const SUBMIT = ["/submit", STRINGS.pages.submit, "jobs:create"] as const;

const THEMES = ["system", "light", "dark"] as const;

/** The frame of every page: navigation, the cluster's state, and the session. */
export function Shell() {
  const path = useRouterState({ select: ({ location }) => location.pathname });
  const content = useRef<HTMLElement>(null);
  const navigation = useRef<HTMLElement>(null);
  const { heddle, self: first } = useSession();
  const self = useQuery({ ...selfQuery(heddle, first), refetchInterval: CALM_MS }).data;
  const may = (permission: Permission | undefined) =>
    permission === undefined || grants(self.permissions, permission);
  const pages = (usePanels().length > 0 ? [...PAGES, PANELS] : PAGES).filter(([, , permission]) =>
    may(permission),
  );
  const [, title, permission] = pageAt(path);
  // All begin at the top of the new page: a reader of the screen, and the keyboard too.
  useEffect(() => {
    content.current?.scrollTo(0, 0);
    content.current?.focus({ preventScroll: true });
    // A narrow screen shows a part of the pages' names.
    navigation.current
      ?.querySelector("[aria-current=page]")
      ?.scrollIntoView({ block: "nearest", inline: "center" });
    document.title = `${pageAt(path)[1]} - ${STRINGS.product}`;
  }, [path]);
  return (
    <div className="shell">
      <a className="skip" href="#content">
        {STRINGS.shell.skip}
      </a>
      <header className="bar">
        <Link to="/" className="brand">
          {STRINGS.product}
        </Link>
        <ClusterState />
        <ProjectSelect />
        <ThemeSelect />
        <SignOut />
      </header>
      <nav className="pages" ref={navigation} aria-label={STRINGS.shell.navigation}>
        {pages.map(([to, title]) => (
          <Link key={to} to={to} activeOptions={{ exact: to === "/" }}>
            {title}
          </Link>
        ))}
      </nav>
      <main id="content" ref={content} tabIndex={-1}>
        {may(permission) ? <Outlet /> : <NotPermitted title={title} permission={permission} />}
      </main>
    </div>
  );
}

function pageAt(path: string) {
  const all = [...PAGES, PANELS, SUBMIT];
  return all.find(([to]) => to !== "/" && path.startsWith(to)) ?? PAGES[0];
}

interface NotPermittedOptions {
  readonly title: string;
  readonly permission: Permission | undefined;
}

function NotPermitted({ title, permission }: NotPermittedOptions) {
  return (
    <div className="page">
      <PageHead title={title} />
      <p>{STRINGS.common.noPermission(String(permission))}</p>
    </div>
  );
}

/** The leader as this master knows it; a failed call leaves the last known state, and says so. */
function ClusterState() {
  const { heddle } = useSession();
  const mayRead = useMay("cluster:read");
  const { data, error } = useQuery({ ...statusQuery(heddle), enabled: mayRead });
  return (
    <div className="cluster-state" role="status">
      {data && (
        <>
          <StatusBadge state={data.health} />
          <span className="leader">
            {STRINGS.shell.leader}: {data.leader ?? STRINGS.shell.noLeader}
          </span>
        </>
      )}
      {error && <span className="lost">{STRINGS.shell.lost}</span>}
    </div>
  );
}

/** Shows in which of several projects the caller acts, and lets it choose another one. */
function ProjectSelect() {
  const { enter } = useSession();
  const { project, projects } = useSelf();
  const [isRefused, setRefused] = useState(false);
  if (!projects || projects.length < 2) return null;
  const choose = (name: string) => {
    setRefused(false);
    enter(name).catch(() => setRefused(true));
  };
  return (
    <>
      {isRefused && <span role="alert">{STRINGS.shell.sameProject}</span>}
      <select
        aria-label={STRINGS.shell.project}
        value={project}
        onChange={({ target }) => choose(target.value)}
      >
        {projects.toSorted().map((name) => (
          <option key={name}>{name}</option>
        ))}
      </select>
    </>
  );
}

function ThemeSelect() {
  const [choice, setChoice] = useState<ThemeChoice>(chosenTheme);
  return (
    <select
      aria-label={STRINGS.shell.theme}
      value={choice}
      onChange={({ target }) => {
        const chosen = THEMES.find((each) => each === target.value) ?? "system";
        setChoice(chosen);
        applyTheme(chosen);
      }}
    >
      {THEMES.map((each) => (
        <option key={each} value={each}>
          {STRINGS.shell.themes[each]}
        </option>
      ))}
    </select>
  );
}

function SignOut() {
  const { self, signOut } = useSession();
  const [isRefused, setRefused] = useState(false);
  return (
    <>
      {isRefused && <span role="alert">{STRINGS.shell.stillSignedIn}</span>}
      <button
        type="button"
        onClick={() => void signOut().catch(() => setRefused(true))}
        title={self.name}
      >
        {STRINGS.shell.signOut}
      </button>
    </>
  );
}
