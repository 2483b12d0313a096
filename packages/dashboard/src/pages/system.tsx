import { errorSentence } from '@berth/wire/error-sentence';
import type { SystemReadiness } from '@berth/wire/system';
import { PageLayout } from '../parts/page-layout.tsx';
import { useApiQuery, useApiList } from '../api/queries.ts';
import { useApiMutation } from '../api/mutations.ts';
import { AdminOnly } from '../parts/admin-only.tsx';
import { QueryBoundary } from '../parts/query-boundary.tsx';
import { Command } from '../parts/command.tsx';
import { Problem } from '../parts/problem.tsx';
import { Ago } from '../parts/time.tsx';
import { bytesText, durationText } from '../parts/time-text.ts';
import { Button } from '../ui/controls.tsx';
import { Facts, Table } from '../ui/data.tsx';
import { Note } from '../ui/feedback.tsx';
import { Column, Panel } from '../ui/layout.tsx';
import { Status } from '../ui/status.tsx';
import { Code, Text } from '../ui/text.tsx';

export const SystemPage = () => (
  <AdminOnly title="System">
    <System />
  </AdminOnly>
);

/** A control plane of an earlier version does not send it. */
const UNKNOWN: Pick<SystemReadiness, 'parts' | 'notes'> & { status: string } = {
  status: 'not known: an earlier version answers',
  parts: [],
  notes: [],
};

function System() {
  const version = useApiQuery('version', {});
  const cleanUps = useApiQuery('cleanUps', {});
  const system = useApiQuery('system', {}, { everyMs: 10_000 });
  const nodes = useApiList('listNodes', { query: { limit: 200 } });
  const clean = useApiMutation('startCleanUp');
  return (
    <PageLayout title="System">
      <Column gap="lg">
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
                  rows={parts.toSorted((a, b) => Number(a.ok) - Number(b.ok))}
                  id={({ name }) => name}
                  cells={[
                    { head: 'Part', rowHead: true, cell: ({ name }) => name },
                    {
                      head: 'State',
                      cell: ({ ok, required }) => (
                        <Status mark={ok ? 'ok' : required ? 'bad' : 'warn'}>
                          {ok ? 'ok' : 'not ok'}
                        </Status>
                      ),
                    },
                    { head: 'Detail', cell: ({ detail }) => <Text>{detail}</Text> },
                  ]}
                />
              </>
            )}
          </QueryBoundary>
        </Panel>
        <Panel title="Versions" id="versions">
          <QueryBoundary query={version} what="the versions">
            {(answer) => (
              <Facts
                items={[
                  ['Berth', answer.version],
                  answer.commit === null ? null : ['Commit', <Code key="c">{answer.commit}</Code>],
                  ['Node.js', answer.node],
                  ['Schema', answer.schema],
                  ['Oldest agent', answer.oldest_agent],
                  [
                    'Agents',
                    [
                      ...new Set(
                        nodes.items.map(({ agent_version }) => agent_version ?? 'contract only'),
                      ),
                    ].join(', '),
                  ],
                ]}
              />
            )}
          </QueryBoundary>
        </Panel>
      </Column>
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
          {({ items, unavailable }) => {
            if (unavailable !== undefined) return <div style={{ padding: 16 }}>{unavailable}</div>;
            return items.length === 0 ? (
              <div style={{ padding: 16 }}>
                <Text tone="quiet">None yet.</Text>
              </div>
            ) : (
              <Table
                label="Clean-ups"
                rows={items}
                id={(row) => row.id}
                cells={[
                  {
                    head: 'Requested',
                    rowHead: true,
                    cell: (row) => <Ago at={row.requested_at} />,
                  },
                  {
                    head: 'State',
                    cell: (row) => (
                      <Status
                        mark={row.state === 'done' ? 'ok' : row.state === 'failed' ? 'bad' : 'busy'}
                      >
                        {row.error === null
                          ? (row.waiting ?? row.state)
                          : errorSentence(row.error.message)}
                      </Status>
                    ),
                  },
                  { head: 'Images removed', number: true, cell: (row) => row.removed ?? '' },
                  {
                    head: 'Freed',
                    number: true,
                    cell: (row) =>
                      row.bytes_before === null || row.bytes_after === null
                        ? ''
                        : bytesText(Math.max(0, row.bytes_before - row.bytes_after)),
                  },
                ]}
              />
            );
          }}
        </QueryBoundary>
      </Panel>
      <QueryBoundary query={system} what="the settings">
        {({ settings, backups }) => (
          <Column gap="lg">
            <Panel
              flush
              title="Backups"
              id="backups"
              actions={<Command words={['backup', 'list']} />}
            >
              <div style={{ padding: '0 16px 12px' }}>
                {backups.interval_seconds === null ? (
                  <Note tone="warn">
                    Berth makes no backups by itself: set BACKUP_TO of the control plane and restart
                    it.
                  </Note>
                ) : (
                  <Text tone="quiet">
                    every {durationText(backups.interval_seconds * 1_000)}
                    {backups.next_at !== null && (
                      <>
                        , the next one <Ago at={backups.next_at} />
                      </>
                    )}
                  </Text>
                )}
              </div>
              {backups.items.length > 0 && (
                <Table
                  label="Backups"
                  rows={backups.items}
                  id={({ id }) => id}
                  cells={[
                    { head: 'Made', rowHead: true, cell: (row) => <Ago at={row.started_at} /> },
                    {
                      head: 'State',
                      cell: ({ error, finished_at }) =>
                        error !== null ? (
                          <Status mark="bad">{error}</Status>
                        ) : (
                          <Status mark={finished_at === null ? 'busy' : 'ok'}>
                            {finished_at === null ? 'not finished' : 'done'}
                          </Status>
                        ),
                    },
                    {
                      head: 'Size',
                      number: true,
                      cell: ({ bytes }) => (bytes === null ? '' : bytesText(bytes)),
                    },
                    {
                      head: 'By',
                      wide: true,
                      cell: ({ scheduled }) => (scheduled ? 'the schedule' : 'a person'),
                    },
                    {
                      head: 'Name',
                      wide: true,
                      cell: ({ name, target }) => <Code>{name ?? target}</Code>,
                    },
                  ]}
                />
              )}
            </Panel>
            <Panel flush title="Settings in force" id="settings">
              <Table
                label="Settings of the control plane"
                rows={settings.toSorted(
                  (a, b) => Number(a.source === 'default') - Number(b.source === 'default'),
                )}
                id={({ name }) => name}
                cells={[
                  { head: 'Setting', rowHead: true, cell: ({ name }) => <Code>{name}</Code> },
                  {
                    head: 'Value',
                    cell: ({ value, source }) =>
                      source === 'hidden' ? (
                        <Text tone="quiet">set; hidden, because it may be a secret</Text>
                      ) : value === null || value === '' ? (
                        <Text tone="quiet">{source === 'set' ? 'empty' : 'not set'}</Text>
                      ) : (
                        <>
                          <Code>{value}</Code>{' '}
                          {source === 'default' && (
                            <Text tone="quiet" inline>
                              default
                            </Text>
                          )}
                        </>
                      ),
                  },
                  {
                    head: 'What it does',
                    wide: true,
                    cell: ({ doc }) => <Text size="xs">{doc}</Text>,
                  },
                ]}
              />
            </Panel>
          </Column>
        )}
      </QueryBoundary>
    </PageLayout>
  );
}
