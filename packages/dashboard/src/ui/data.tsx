/** Tables, lists of facts, and tabs. */
import { Link, useRouterState } from '@tanstack/react-router';
import { memo, type ReactNode, useDeferredValue, useEffect, useRef } from 'react';
import { defined } from '@berth/kit/defined';
import { cleanNode } from './foreign.ts';

export type Cell<T> = {
  head: string;
  cell: (row: T) => ReactNode;
  /** True for a column of numbers, which is aligned to the right. */
  number?: boolean;
  /** True for a column that is hidden below 800 px. */
  wide?: boolean;
  /** True for the column that is the header of its row for screen readers. */
  rowHead?: boolean;
};
type TableProps<T> = {
  label: string;
  rows: readonly T[];
  cells: readonly Cell<T>[];
  id: (row: T) => string;
};

/**
 * Number of rows that a table renders at once. React renders a longer table in parts, so that the
 * page reacts to keys meanwhile.
 */
const AT_ONCE = 20;
/**
 * Minimum height of a row in px. It reserves space for rows that are not rendered yet, so that the
 * page can restore its scroll position.
 */
const ROW_PX = 42;
/** Class of the UI library that hides an element below 800 px. */
const WIDE = 'mantine-visible-from-sm';

/**
 * A table. On a phone, each row becomes a card that shows the column heads before the values
 * (global.css). With such a layout, screen readers no longer recognise a table, so all parts have
 * explicit roles. Uses plain elements, because components of the UI library take several times as
 * long.
 */
export function Table<T>({ label, rows, cells, id }: TableProps<T>) {
  const now = { rows, cells, id };
  const soon = useDeferredValue(now, { ...now, rows: rows.slice(0, AT_ONCE) });
  const shown = rows.length > AT_ONCE ? soon : now;
  const isLate = shown.rows.length < rows.length;
  return (
    <div
      className="table-scroll"
      role="region"
      aria-label={label}
      tabIndex={0}
      {...(isLate ? { style: { minHeight: rows.length * ROW_PX } } : {})}
    >
      <table role="table" className="cards">
        <caption className="visually-hidden">{label}</caption>
        <thead role="rowgroup">
          <tr role="row">
            {cells.map((cell) => (
              <th
                key={cell.head}
                scope="col"
                role="columnheader"
                {...(cell.wide ? { className: WIDE } : {})}
                style={{ textAlign: cell.number ? 'right' : 'left', whiteSpace: 'nowrap' }}
              >
                {cell.head}
              </th>
            ))}
          </tr>
        </thead>
        <Body {...shown} />
      </table>
    </div>
  );
}

type BodyProps<T> = Pick<TableProps<T>, 'rows' | 'cells' | 'id'>;
const Body = memo(function Body<T>({ rows, cells, id }: BodyProps<T>) {
  return (
    <tbody role="rowgroup">
      {rows.map((row) => (
        <BodyRow key={id(row)} row={row} cells={cells} />
      ))}
    </tbody>
  );
}) as <T>(props: BodyProps<T>) => ReactNode;

/** A row is a component of its own, because React can pause only between components. */
function BodyRow<T>({ row, cells }: { row: T; cells: readonly Cell<T>[] }) {
  return (
    <tr role="row">
      {cells.map(({ head, cell, number, wide, rowHead }) => {
        const content = cleanNode(cell(row));
        const classes = [...(number ? ['number'] : []), ...(wide && !rowHead ? [WIDE] : [])];
        const attributes = {
          ...defined({ className: classes.length === 0 ? undefined : classes.join(' ') }),
          'data-head': head,
          ...defined({ 'data-empty': content === null || content === '' ? true : undefined }),
        };
        return rowHead ? (
          <th key={head} scope="row" role="rowheader" {...attributes}>
            <div>{content}</div>
          </th>
        ) : (
          <td key={head} role="cell" {...attributes}>
            <div>{content}</div>
          </td>
        );
      })}
    </tr>
  );
}

/** A list of names and values. A null item is left out. */
export const Facts = ({ items }: { items: readonly (readonly [string, ReactNode] | null)[] }) => (
  <dl
    style={{
      display: 'grid',
      gridTemplateColumns: 'fit-content(min(45%, 30vw)) minmax(0, 1fr)',
      gap: '6px 16px',
      margin: 0,
      fontSize: '0.875rem',
    }}
  >
    {items.map((item) =>
      item === null ? null : (
        <div key={item[0]} style={{ display: 'contents' }}>
          <dt style={{ color: 'var(--quiet)' }}>{item[0]}</dt>
          <dd style={{ margin: 0, minWidth: 0 }}>{cleanNode(item[1])}</dd>
        </div>
      ),
    )}
  </dl>
);

export type Tab = { label: string; to: string; params?: Record<string, string>; count?: number };
/**
 * Tabs as links, so that each tab has an address. On a phone, the strip scrolls to the current tab.
 */
export function Tabs({ label, tabs }: { label: string; tabs: readonly Tab[] }) {
  const strip = useRef<HTMLElement>(null);
  const current = useRouterState({ select: ({ location }) => location.pathname });
  useEffect(() => {
    const box = strip.current;
    if (box === null) return;
    const show = (): void => {
      // Find the link by address: the router marks it only after the address changed.
      const link = [...box.querySelectorAll('a')].find(
        ({ pathname }) => pathname === new URL(current, location.href).pathname,
      );
      if (link !== undefined)
        box.scrollLeft = link.offsetLeft - (box.clientWidth - link.offsetWidth) / 2;
    };
    show();
    // Loaded fonts and a rotated phone change the widths.
    const watch = new ResizeObserver(show);
    watch.observe(box);
    return () => watch.disconnect();
  }, [current]);
  return (
    <nav ref={strip} aria-label={label} className="tabs">
      {tabs.map((tab) => (
        <Link
          key={tab.label}
          to={tab.to}
          params={(tab.params ?? {}) as never}
          activeOptions={{ exact: true, includeSearch: false }}
          activeProps={{ 'aria-current': 'page' }}
          data-label={tab.label}
        >
          {tab.label}
          {tab.count !== undefined && <span className="tab-count">{tab.count}</span>}
        </Link>
      ))}
    </nav>
  );
}
