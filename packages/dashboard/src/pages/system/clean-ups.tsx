/** Clean-ups of the registry. */
import { errorSentence } from '@berth/wire/error-sentence';
import type { CleanUp, CleanUps } from '@berth/wire/clean-up';
import { sizeText } from '@berth/wire/size-text';
import { useApiMutation } from '../../api/mutations.ts';
import { useApiQuery } from '../../api/queries.ts';
import { Problem } from '../../parts/problem.tsx';
import { QueryBoundary } from '../../parts/query-boundary.tsx';
import { Ago } from '../../parts/time.tsx';
import { Button } from '../../ui/controls.tsx';
import { type Cell, Table } from '../../ui/data.tsx';
import { Panel } from '../../ui/layout.tsx';
import { type Mark, Status } from '../../ui/status.tsx';
import { Text } from '../../ui/text.tsx';

export function RegistryCleanUps() {
  const cleanUps = useApiQuery('cleanUps', {});
  const clean = useApiMutation('startCleanUp');
  return (
    <Panel
      flush
      title="Clean-up of the registry"
      id="clean"
      actions={
        <Button size="xs" busy={clean.busy} onClick={() => void clean.run({})}>
          Clean up now
        </Button>
      }
    >
      <Problem error={clean.error} what="The clean-up" />
      <QueryBoundary query={cleanUps} what="the clean-ups">
        {(answer) => <CleanUpTable cleanUps={answer} />}
      </QueryBoundary>
    </Panel>
  );
}

function markOf({ state }: CleanUp): Mark {
  if (state === 'done') return 'ok';
  return state === 'failed' ? 'bad' : 'busy';
}

const freedText = ({ bytes_before, bytes_after }: CleanUp): string =>
  bytes_before === null || bytes_after === null
    ? ''
    : sizeText(Math.max(0, bytes_before - bytes_after));

const CLEAN_UP_COLUMNS: Cell<CleanUp>[] = [
  { head: 'Requested', rowHead: true, cell: (row) => <Ago at={row.requested_at} /> },
  {
    head: 'State',
    cell: (row) => (
      <Status mark={markOf(row)}>
        {row.error === null ? (row.waiting ?? row.state) : errorSentence(row.error.message)}
      </Status>
    ),
  },
  { head: 'Images removed', number: true, cell: (row) => row.removed ?? '' },
  { head: 'Freed', number: true, cell: freedText },
];

function CleanUpTable({ cleanUps: { items, unavailable } }: { cleanUps: CleanUps }) {
  if (unavailable !== undefined) return <div style={{ padding: 16 }}>{unavailable}</div>;
  if (items.length === 0)
    return (
      <div style={{ padding: 16 }}>
        <Text tone="quiet">None yet.</Text>
      </div>
    );
  return <Table label="Clean-ups" rows={items} id={(row) => row.id} cells={CLEAN_UP_COLUMNS} />;
}
