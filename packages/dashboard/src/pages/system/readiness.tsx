/** The readiness of the control plane and of its parts. */
import type { AnswerOf } from '@berth/wire/routes';
import type { SystemReadiness } from '@berth/wire/system';
import type { UseQueryResult } from '@tanstack/react-query';
import { Command } from '../../parts/command.tsx';
import { QueryBoundary } from '../../parts/query-boundary.tsx';
import { type Cell, Table } from '../../ui/data.tsx';
import { Note } from '../../ui/feedback.tsx';
import { Panel } from '../../ui/layout.tsx';
import { type Mark, Status } from '../../ui/status.tsx';
import { Text } from '../../ui/text.tsx';

/** Shown if an older control plane sends no readiness. */
const UNKNOWN: Pick<SystemReadiness, 'parts' | 'notes'> & { status: string } = {
  status: 'not known: an earlier version answers',
  parts: [],
  notes: [],
};

type Part = SystemReadiness['parts'][number];

function markOf({ ok, required }: Part): Mark {
  if (ok) return 'ok';
  return required ? 'bad' : 'warn';
}

const PART_COLUMNS: Cell<Part>[] = [
  { head: 'Part', rowHead: true, cell: ({ name }) => name },
  {
    head: 'State',
    cell: (part) => <Status mark={markOf(part)}>{part.ok ? 'ok' : 'not ok'}</Status>,
  },
  { head: 'Detail', cell: ({ detail }) => <Text>{detail}</Text> },
];

export const Readiness = ({ system }: { system: UseQueryResult<AnswerOf<'system'>> }) => (
  <Panel
    flush
    title="Readiness"
    id="ready"
    actions={<Command words={['doctor', 'control-plane']} />}
  >
    <QueryBoundary query={system} what="the readiness">
      {({ readiness: { status, parts, notes } = UNKNOWN }) => (
        <>
          <div style={{ padding: '0 16px 12px' }}>
            <Status mark={status === 'ready' ? 'ok' : 'bad'} strong>
              {status}
            </Status>
            {notes.map((note) => (
              <Note key={note} tone="warn">
                {note}
              </Note>
            ))}
          </div>
          <Table
            label="Parts of the control plane"
            // Sort broken parts first.
            rows={parts.toSorted((a, b) => Number(a.ok) - Number(b.ok))}
            id={({ name }) => name}
            cells={PART_COLUMNS}
          />
        </>
      )}
    </QueryBoundary>
  </Panel>
);
