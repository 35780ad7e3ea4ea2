import { useRouter } from "@tanstack/react-router";
import type { MouseEvent } from "react";

/** Pages whose files were asked for. */
const preloaded = new Set<string>();

interface RowLinkOptions {
  readonly to: "/jobs/$id" | "/nodes/$id";
  readonly id: string;
  readonly className: "row-link" | "name";
  /** A list may cut it: the whole one is its title. */
  readonly children: string;
}

/**
 * A link in a list to one of its entries. Unlike the router's own it does not follow the location,
 * and it preloads a page once: many are drawn in each frame of a scroll.
 */
export function RowLink({ to, id, className, children }: RowLinkOptions) {
  const router = useRouter();
  const target = { to, params: { id } } as const;
  const preload = () => {
    if (preloaded.has(to)) return;
    preloaded.add(to);
    router.preloadRoute(target).catch(() => preloaded.delete(to));
  };
  const open = (event: MouseEvent) => {
    const isForBrowser = event.metaKey || event.ctrlKey || event.shiftKey || event.altKey;
    if (event.button !== 0 || isForBrowser) return;
    event.preventDefault();
    void router.navigate(target);
  };
  return (
    <a
      className={className}
      href={`${router.basepath}${to.replace("$id", encodeURIComponent(id))}`}
      title={children}
      onClick={open}
      onMouseEnter={preload}
      onFocus={preload}
    >
      {children}
    </a>
  );
}
