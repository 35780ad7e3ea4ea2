import { useQuery } from "@tanstack/react-query";
import { Link, Outlet, useRouterState } from "@tanstack/react-router";
import { useEffect, useRef, useState } from "react";
import { statusQuery } from "./data/queries.ts";
import { usePanels } from "./plugins/use-panels.ts";
import { useSession } from "./session/session.ts";
import { STRINGS } from "./strings.ts";
import { StatusBadge } from "./ui/status-badge.tsx";
import { applyTheme, chosenTheme, type ThemeChoice } from "./ui/theme.ts";

const PAGES = [
  ["/", STRINGS.pages.overview],
  ["/nodes", STRINGS.pages.nodes],
  ["/gpus", STRINGS.pages.gpus],
  ["/jobs", STRINGS.pages.jobs],
  ["/models", STRINGS.pages.models],
  ["/playground", STRINGS.pages.playground],
  ["/usage", STRINGS.pages.usage],
  ["/events", STRINGS.pages.events],
  ["/control-plane", STRINGS.pages.controlPlane],
  ["/settings", STRINGS.pages.settings],
] as const;

/** Offered where a plugin has one. */
const PANELS = ["/panels", STRINGS.pages.panels] as const;

const THEMES = ["system", "light", "dark"] as const;

/** The frame of every page: navigation, the cluster's state, and the session. */
export function Shell() {
  const path = useRouterState({ select: ({ location }) => location.pathname });
  const content = useRef<HTMLElement>(null);
  const navigation = useRef<HTMLElement>(null);
  const pages = usePanels().length > 0 ? [...PAGES, PANELS] : PAGES;
  // A reader of the screen, and the keyboard, begin at the new page.
  useEffect(() => {
    content.current?.focus({ preventScroll: true });
    // A narrow screen shows a part of the pages' names.
    navigation.current
      ?.querySelector("[aria-current=page]")
      ?.scrollIntoView({ block: "nearest", inline: "center" });
    document.title = `${titleOf(path)} - ${STRINGS.product}`;
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
        <Outlet />
      </main>
    </div>
  );
}

function titleOf(path: string): string {
  const own = [...PAGES, PANELS].find(([to]) => to !== "/" && path.startsWith(to));
  if (path.startsWith("/submit")) return STRINGS.pages.submit;
  return own?.[1] ?? STRINGS.pages.overview;
}

/** The leader as this master knows it; a failed call leaves the last known state, and says so. */
function ClusterState() {
  const { heddle } = useSession();
  const { data, error } = useQuery(statusQuery(heddle));
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
