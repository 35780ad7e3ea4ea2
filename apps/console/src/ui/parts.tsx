import type { ReactNode } from "react";
import { STRINGS } from "../strings.ts";
import { ErrorNote } from "./error-note.tsx";

/** The head of a page, with its actions. */
export function PageHead({ title, children }: PartOptions) {
  return (
    <header className="page-head">
      <h1>{title}</h1>
      <div className="buttons">{children}</div>
    </header>
  );
}

interface PartOptions {
  readonly title: ReactNode;
  readonly children?: ReactNode;
}

export function Card({ title, children }: PartOptions) {
  return (
    <section className="card">
      <h2>{title}</h2>
      {children}
    </section>
  );
}

/** Names and values. */
export function Facts({ rows }: { readonly rows: readonly (readonly [string, ReactNode])[] }) {
  return (
    <dl className="facts">
      {rows.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value === "" || value === null ? STRINGS.common.none : value}</dd>
        </div>
      ))}
    </dl>
  );
}

/** What a query has so far: its error, or that it loads. */
export function Waiting({ error }: { readonly error: unknown }) {
  if (error) return <ErrorNote error={error} />;
  return <p className="muted">{STRINGS.common.loading}</p>;
}

/** A share from 0 to 1 as a bar with its text. */
export function Meter({ share, text }: { readonly share: number; readonly text: string }) {
  const width = `${Math.round(Math.min(1, Math.max(0, share)) * 100)}%`;
  return (
    <span className="meter">
      <span className="meter-bar" aria-hidden="true" style={{ backgroundSize: width }} />
      <span className="meter-text">{text}</span>
    </span>
  );
}

/** A small table whose rows are all in the document. */
export function PlainTable({ label, head, rows }: PlainTableOptions) {
  return (
    <div className="plain-table" tabIndex={0}>
      <table aria-label={label}>
        <thead>
          <tr>
            {head.map((title) => (
              <th key={title} scope="col">
                {title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map(({ key, cells }) => (
            <tr key={key}>
              {cells.map((cell, at) => (
                <td key={head[at]}>{cell}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

export interface PlainTableOptions {
  readonly label: string;
  readonly head: readonly string[];
  readonly rows: readonly PlainTableRow[];
}

export interface PlainTableRow {
  readonly key: string;
  readonly cells: readonly ReactNode[];
}
