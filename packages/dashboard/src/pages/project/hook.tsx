/** The tab "Hook": a forge notifies Berth about each push. */
import { ApiError } from '@berth/wire/client';
import { type Delivery, type Forge, FORGES, type Hook as HookFacts } from '@berth/wire/hook';
import type { Project } from '@berth/wire/project';
import { useState } from 'react';
import { useApiMutation } from '../../api/mutations.ts';
import { useApiList, useApiQuery } from '../../api/queries.ts';
import { Command, Empty } from '../../parts/command.tsx';
import { DeploymentLink } from '../../parts/links.tsx';
import { useProjectReasons } from '../../parts/permissions.ts';
import { Problem } from '../../parts/problem.tsx';
import { QueryBoundary } from '../../parts/query-boundary.tsx';
import { ShownOnce } from '../../parts/shown-once.tsx';
import { Ago } from '../../parts/time.tsx';
import { Button, Copy } from '../../ui/controls.tsx';
import { type Cell, Facts, Table } from '../../ui/data.tsx';
import { Select } from '../../ui/fields.tsx';
import { Column, Panel, Row } from '../../ui/layout.tsx';
import { Code, Text } from '../../ui/text.tsx';

export function Hook({ project }: { project: Project }) {
  const hook = useApiQuery('getHook', { params: { id: project.id } });
  const [secret, setSecret] = useState<string | null>(null);
  const hasNone = hook.error instanceof ApiError && hook.error.status === 404;
  return (
    <Column>
      <ShownOnce what="secret" secret={secret} />
      {hasNone ? (
        <CreateHook project={project} onSecret={setSecret} />
      ) : (
        <QueryBoundary query={hook} what="the hook">
          {(facts) => (
            <>
              <HookPanel project={project} hook={facts} onDeleted={() => setSecret(null)} />
              <Deliveries project={project} />
            </>
          )}
        </QueryBoundary>
      )}
    </Column>
  );
}

type CreateHookProps = { project: Project; onSecret: (secret: string | null) => void };
function CreateHook({ project, onSecret }: CreateHookProps) {
  const reason = useProjectReasons(project)('set_hook');
  const [forge, setForge] = useState<Forge>('gitea');
  const put = useApiMutation('putHook', ({ secret }) => onSecret(secret));
  return (
    <Panel title="Deploy on push" id="hook">
      <Column gap="sm">
        <Text>
          After each push, the forge calls an address of Berth. Berth then looks at the branch and
          deploys it.
        </Text>
        <Select
          label="Forge"
          value={forge}
          onChange={setForge}
          options={FORGES.map((value) => ({ value, label: value }))}
        />
        <Problem error={put.error} what="Creating the hook" />
        <Row>
          <Button
            look="main"
            reason={reason}
            busy={put.busy}
            onClick={() => void put.run({ params: { id: project.id }, body: { forge } })}
          >
            Create the hook
          </Button>
          <Command words={['hook', 'create', '--forge', forge, '--project', project.name]} />
        </Row>
      </Column>
    </Panel>
  );
}

const STEPS_AT_FORGE =
  'At the forge, add a webhook to the repository: this address, the secret, ' +
  'content type JSON, only push events.';

type HookPanelProps = { project: Project; hook: HookFacts; onDeleted: () => void };
function HookPanel({ project, hook, onDeleted }: HookPanelProps) {
  const reason = useProjectReasons(project)('set_hook');
  const remove = useApiMutation('deleteHook', onDeleted);
  return (
    <>
      <Problem error={remove.error} what="Deleting the hook" />
      <Panel
        title="Hook"
        id="hook"
        actions={
          <Button
            size="xs"
            look="danger"
            reason={reason}
            busy={remove.busy}
            onClick={() => void remove.run({ params: { id: project.id } })}
          >
            Delete the hook
          </Button>
        }
      >
        <Facts
          items={[
            ['Forge', hook.forge],
            [
              'Address',
              <span key="u">
                <Code>{hook.url}</Code> <Copy text={hook.url} label="Copy the address" />
              </span>,
            ],
            ['Steps', STEPS_AT_FORGE],
            ['Refused deliveries', String(hook.refused)],
          ]}
        />
      </Panel>
    </>
  );
}

const DELIVERY_COLUMNS: Cell<Delivery>[] = [
  { head: 'Received', rowHead: true, cell: (row) => <Ago at={row.at} /> },
  {
    head: 'Event',
    cell: ({ event, branch }) => (branch === null ? event : `${event} ${branch}`),
  },
  {
    head: 'Verdict',
    cell: ({ verdict, reason }) => (
      <>
        {verdict ?? 'in progress'}
        {reason !== null && (
          <Text size="xs" tone="quiet">
            {reason}
          </Text>
        )}
      </>
    ),
  },
  {
    head: 'Deployment',
    cell: ({ deployment_id: id }) =>
      id === null ? null : <DeploymentLink id={id}>open</DeploymentLink>,
  },
];

function Deliveries({ project }: { project: Project }) {
  const deliveries = useApiList('listDeliveries', {
    params: { id: project.id },
    query: { limit: 20 },
  });
  return (
    <Panel
      flush
      title="Deliveries"
      id="deliveries"
      actions={<Command words={['hook', 'deliveries', project.name]} />}
    >
      {deliveries.items.length === 0 ? (
        <Empty>No deliveries yet. Push a commit.</Empty>
      ) : (
        <Table
          label="Deliveries"
          rows={deliveries.items}
          id={(row) => row.id}
          cells={DELIVERY_COLUMNS}
        />
      )}
    </Panel>
  );
}
