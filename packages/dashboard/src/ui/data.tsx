/** Tables, lists of facts and tabs. */
import { Table as MantineTable } from '@mantine/core';
import { Link } from '@tanstack/react-router';
import type { ReactNode } from 'react';

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
export function Table<T>({ label, rows, cells, id }: TableProps<T>) {
  return (
    <div className="table-scroll" role="region" aria-label={label} tabIndex={0}>
      <MantineTable verticalSpacing="xs" horizontalSpacing="md" highlightOnHover>
        <MantineTable.Caption className="visually-hidden">{label}</MantineTable.Caption>
        <MantineTable.Thead>
          <MantineTable.Tr>
            {cells.map((cell) => (
              <MantineTable.Th
                key={cell.head}
                scope="col"
                {...(cell.wide ? { visibleFrom: 'sm' } : {})}
                style={{ textAlign: cell.number ? 'right' : 'left', whiteSpace: 'nowrap' }}
              >
                {cell.head}
              </MantineTable.Th>
            ))}
          </MantineTable.Tr>
        </MantineTable.Thead>
        <MantineTable.Tbody>
          {rows.map((row) => (
            <MantineTable.Tr key={id(row)}>
              {cells.map((cell) => {
                const style = cell.number ? { textAlign: 'right' as const, fontVariantNumeric: 'tabular-nums' } : {};
                return cell.rowHead ? (
                  <MantineTable.Th key={cell.head} scope="row" style={style} fw={500}>
                    {cell.cell(row)}
                  </MantineTable.Th>
                ) : (
                  <MantineTable.Td key={cell.head} style={style} {...(cell.wide ? { visibleFrom: 'sm' } : {})}>
                    {cell.cell(row)}
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
          <dd style={{ margin: 0, minWidth: 0 }}>{item[1]}</dd>
        </div>
      ),
    )}
  </dl>
);

export type Tab = { label: string; to: string; params?: Record<string, string>; count?: number };
/** Tabs are links: each one has an address. */
export const Tabs = ({ label, tabs }: { label: string; tabs: readonly Tab[] }) => (
  <nav aria-label={label} className="tabs">
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
