/** Tables, lists of facts and tabs. */
import { Table as MantineTable } from '@mantine/core';
import { Link, useRouterState } from '@tanstack/react-router';
import { type ReactNode, useEffect, useRef } from 'react';
import { cleanNode } from './foreign.ts';

export type Cell<T> = {
  head: string;
  cell: (row: T) => ReactNode;
  /** Numbers are aligned to the right. */
  number?: boolean;
  /** Left out below 800 px. */
  wide?: boolean;
  /** Header of its row for screen readers. */
  rowHead?: boolean;
};
type TableProps<T> = { label: string; rows: readonly T[]; cells: readonly Cell<T>[]; id: (row: T) => string };
/**
 * On a phone each row is a card with the heads before its values (global.css). A table that is laid out in another way is no table for
 * screen readers any more, so all parts say their role.
 */
export function Table<T>({ label, rows, cells, id }: TableProps<T>) {
  return (
    <div className="table-scroll" role="region" aria-label={label} tabIndex={0}>
      <MantineTable verticalSpacing="xs" horizontalSpacing="md" highlightOnHover role="table" className="cards">
        <MantineTable.Caption className="visually-hidden">{label}</MantineTable.Caption>
        <MantineTable.Thead role="rowgroup">
          <MantineTable.Tr role="row">
            {cells.map((cell) => (
              <MantineTable.Th
                key={cell.head}
                scope="col"
                role="columnheader"
                {...(cell.wide ? { visibleFrom: 'sm' } : {})}
                style={{ textAlign: cell.number ? 'right' : 'left', whiteSpace: 'nowrap' }}
              >
                {cell.head}
              </MantineTable.Th>
            ))}
          </MantineTable.Tr>
        </MantineTable.Thead>
        <MantineTable.Tbody role="rowgroup">
          {rows.map((row) => (
            <MantineTable.Tr key={id(row)} role="row">
              {cells.map((cell) => {
                const content = cleanNode(cell.cell(row));
                const given = {
                  ...(cell.number ? { className: 'number' } : {}),
                  'data-head': cell.head,
                  ...(content === null || content === '' ? { 'data-empty': true } : {}),
                };
                return cell.rowHead ? (
                  <MantineTable.Th key={cell.head} scope="row" role="rowheader" fw={500} {...given}>
                    <div>{content}</div>
                  </MantineTable.Th>
                ) : (
                  <MantineTable.Td key={cell.head} role="cell" {...given} {...(cell.wide ? { visibleFrom: 'sm' } : {})}>
                    <div>{content}</div>
                  </MantineTable.Td>
                );
              })}
            </MantineTable.Tr>
          ))}
        </MantineTable.Tbody>
      </MantineTable>
    </div>
  );
}

/** Names and values. A row with null is left out. */
export const Facts = ({ items }: { items: readonly (readonly [string, ReactNode] | null)[] }) => (
  <dl
    style={{
      display: 'grid',
      gridTemplateColumns: 'fit-content(45%) minmax(0, 1fr)',
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
/** Tabs are links: each one has an address. On a phone the strip scrolls, and shows the current one. */
export function Tabs({ label, tabs }: { label: string; tabs: readonly Tab[] }) {
  const strip = useRef<HTMLElement>(null);
  const current = useRouterState({ select: ({ location }) => location.pathname });
  useEffect(() => {
    const [box, link] = [strip.current, strip.current?.querySelector<HTMLElement>('[aria-current="page"]')];
    if (box !== null && link !== null && link !== undefined) box.scrollLeft = link.offsetLeft - (box.clientWidth - link.offsetWidth) / 2;
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
        >
          {tab.label}
          {tab.count !== undefined && <span className="tab-count">{tab.count}</span>}
        </Link>
      ))}
    </nav>
  );
}
