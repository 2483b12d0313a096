/** Backups of the control plane: their schedule and the newest ones. */
import type { AnswerOf } from '@berth/wire/routes';
import { sizeText } from '@berth/wire/size-text';
import { Command } from '../../parts/command.tsx';
import { Ago } from '../../parts/time.tsx';
import { durationText } from '../../parts/time-text.ts';
import { type Cell, Table } from '../../ui/data.tsx';
import { Note } from '../../ui/feedback.tsx';
import { Panel } from '../../ui/layout.tsx';
import { Status } from '../../ui/status.tsx';
import { Code, Text } from '../../ui/text.tsx';

type BackupsProps = { backups: AnswerOf<'system'>['backups'] };
type Backup = BackupsProps['backups']['items'][number];

function BackupStatus({ backup: { error, finished_at } }: { backup: Backup }) {
  if (error !== null) return <Status mark="bad">{error}</Status>;
  return finished_at === null ? (
    <Status mark="busy">not finished</Status>
  ) : (
    <Status mark="ok">done</Status>
  );
}

const BACKUP_COLUMNS: Cell<Backup>[] = [
  { head: 'Made', rowHead: true, cell: (row) => <Ago at={row.started_at} /> },
  { head: 'State', cell: (row) => <BackupStatus backup={row} /> },
  { head: 'Size', number: true, cell: ({ bytes }) => (bytes === null ? '' : sizeText(bytes)) },
  { head: 'By', wide: true, cell: ({ scheduled }) => (scheduled ? 'the schedule' : 'a person') },
  { head: 'Name', wide: true, cell: ({ name, target }) => <Code>{name ?? target}</Code> },
];

export const Backups = ({ backups }: BackupsProps) => (
  <Panel flush title="Backups" id="backups" actions={<Command words={['backup', 'list']} />}>
    <div style={{ padding: '0 16px 12px' }}>
      <Schedule backups={backups} />
    </div>
    {backups.items.length > 0 && (
      <Table label="Backups" rows={backups.items} id={({ id }) => id} cells={BACKUP_COLUMNS} />
    )}
  </Panel>
);

function Schedule({ backups: { interval_seconds, next_at } }: BackupsProps) {
  if (interval_seconds === null)
    return (
      <Note tone="warn">
        Berth makes no backups by itself: set BACKUP_TO of the control plane and restart it.
      </Note>
    );
  return (
    <Text tone="quiet">
      every {durationText(interval_seconds * 1_000)}
      {next_at !== null && (
        <>
          , the next one <Ago at={next_at} />
        </>
      )}
    </Text>
  );
}
