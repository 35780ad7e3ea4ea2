import { grants } from "@heddle/auth/scopes";
import type { Permission } from "@heddle/contracts/api/permission";
import { useQuery } from "@tanstack/react-query";
import { pluginsQuery } from "../data/queries.ts";
import { useMay, useSelf, useSession } from "../session/session.ts";

/** A panel that a plugin adds to the console. */
export interface PluginPanel {
  readonly plugin: string;
  readonly name: string;
  readonly title: string;
}

/** The panels that the caller may see; none until the list of plugins is read. */
export function usePanels(): readonly PluginPanel[] {
  const { heddle } = useSession();
  const { permissions } = useSelf();
  const { data = [] } = useQuery({ ...pluginsQuery(heddle), enabled: useMay("cluster:read") });
  const maySee = (permission: string) =>
    permission === "authenticated" || grants(permissions, permission as Permission);
  return data.flatMap(({ id, panels }) =>
    panels
      .filter(({ permission }) => maySee(permission))
      .map(({ name, title }) => ({ plugin: id, name, title })),
  );
}
