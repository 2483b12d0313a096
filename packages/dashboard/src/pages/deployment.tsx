import type { Deployment } from '@berth/wire/deployment';
import { errorSentence } from '@berth/wire/error-sentence';
import type { Project } from '@berth/wire/project';
import { isSettled } from '@berth/wire/vocabulary';
import { can } from '@berth/wire/can';
import { useNavigate, useParams } from '@tanstack/react-router';
import { PageLayout } from '../parts/page-layout.tsx';
import { conditionOf, useReasons } from '../parts/permissions.ts';
import { useApiQuery } from '../api/queries.ts';
import { errorOfLast, useApiMutation } from '../api/mutations.ts';
import { QueryBoundary } from '../parts/query-boundary.tsx';
import { Command, Empty } from '../parts/command.tsx';
import { commitText, LiveStatus, rolledBackText } from '../parts/deployments.tsx';
import { useLogStream } from '../parts/log-data.ts';
import { LogView } from '../parts/log-view.tsx';
import { Problem } from '../parts/problem.tsx';
import { HealthStatus } from '../parts/states.tsx';
import { Ago, Exact, useNow } from '../parts/time.tsx';
import { bytesText, durationText, exactTime, zoneAt } from '../parts/time-text.ts';
import { Button, Copy } from '../ui/controls.tsx';
import { Facts, Table } from '../ui/data.tsx';
import { requesterText, triggerText } from '../parts/words.ts';
import { clean } from '../ui/foreign.ts';
import { Note, Progress } from '../ui/feedback.tsx';
import { Column, Panel, WithSide } from '../ui/layout.tsx';
import { Status } from '../ui/status.tsx';
import { Code, OutLink, PageLink, Text } from '../ui/text.tsx';

export const DeploymentPage = () => {
  const { id } = useParams({ strict: false }) as { id: string };
  const deployment = useApiQuery('getDeployment', { params: { id } });
  return (
    <QueryBoundary query={deployment} what="the deployment" page>
      {(found) => <Loaded key={found.id} deployment={found} />}
    </QueryBoundary>
  );
};

/** The first question after a failure: what do visitors get now? */
function StillServes({ project }: { project: Project }) {
  const id = project.running_deployment_id;
  const running = useApiQuery(
    'getDeployment',
    { params: { id: id ?? '' } },
    { enabled: id !== null },
  );
  if (id === null) return <Text>No version of this project serves.</Text>;
  if (project.stopped)
    return <Text>The project is stopped; visitors get a page that says so.</Text>;
  if (running.data === undefined) return null;
  return (
    <Text>
      Visitors still get{' '}
      <PageLink to="/deployments/$id" params={{ id }}>
        {`deployment #${running.data.generation}`}
      </PageLink>
      , {commitText(running.data)}.
    </Text>
  );
}

function Loaded({ deployment }: { deployment: Deployment }) {
  const navigate = useNavigate();
  const project = useApiQuery('getProject', { params: { id: deployment.project_id } });
  const reasonAgainst = useReasons(project.data);
  const cancel = useApiMutation('cancelDeployment');
  const rollback = useApiMutation(
    'rollback',
    (answer) => void navigate({ to: '/deployments/$id', params: { id: answer.id } }),
  );
  const again = useApiMutation(
    'createDeployment',
    (answer) => void navigate({ to: '/deployments/$id', params: { id: answer.id } }),
  );
  /** It never served, so the way on is another deployment. */
  const hasEnded = isSettled(deployment.status) && !can('rollback_to', deployment.status);
  const { lines, notes } = useLogStream(`/api/deployments/${deployment.id}/logs`);
  /** Null until it is read: a command with a placeholder could be copied. */
  const name = project.data?.name ?? null;
  const error = errorOfLast(cancel, rollback, again);
  const exits = useApiQuery('deploymentExits', { params: { id: deployment.id } });
  return (
    <PageLayout
      title={
        name === null ? `Deployment #${deployment.generation}` : `${name} #${deployment.generation}`
      }
      lead={
        <span>
          <LiveStatus item={deployment} stopped={project.data?.stopped === true} strong />:{' '}
          {commitText(deployment)}, requested <Ago at={deployment.created_at} />
          {rolledBackText(deployment)}
          {requesterText(deployment) !== '' && ` by ${clean(requesterText(deployment))}`}
        </span>
      }
      actions={
        <>
          {name !== null && (
            <PageLink to="/projects/$name" params={{ name }} size="sm">
              Project {name}
            </PageLink>
          )}
          <Command words={['deployment', 'show', deployment.id]} />
          <OutLink href={deployment.url}>Open</OutLink>
          {hasEnded && (
            <Button
              look="main"
              reason={
                project.data === undefined
                  ? 'the project is not read yet'
                  : reasonAgainst('deploy', conditionOf(project.data))
              }
              busy={again.busy}
              onClick={() => void again.run({ params: { id: deployment.project_id }, body: {} })}
            >
              Deploy again
            </Button>
          )}
          {can('rollback_to', deployment.status) && deployment.status !== 'running' && (
            <Button
              reason={reasonAgainst('rollback_to', deployment.status)}
              busy={rollback.busy}
              onClick={() =>
                void rollback.run({
                  params: { id: deployment.project_id },
                  body: { deployment_id: deployment.id },
                })
              }
            >
              Roll back to this
            </Button>
          )}
          {/* A pressed button stays, with the focus that it has. */}
          {(!isSettled(deployment.status) || cancel.startedAt !== 0) && (
            <Button
              look="danger"
              reason={
                reasonAgainst('cancel', deployment.status) ??
                (deployment.cancel_requested ? 'its end is requested already' : null)
              }
              busy={cancel.busy}
              onClick={() => void cancel.run({ params: { id: deployment.id } })}
            >
              Cancel
            </Button>
          )}
        </>
      }
    >
      <Problem error={error} what="The action" />
      {deployment.error !== null && (
        <Note tone="bad" title="Why it failed">
          <Column gap="xs">
            <Text strong>{errorSentence(deployment.error.message)}</Text>
            {deployment.error.message.trim().includes('\n') && (
              <Text size="xs" mono lines>
                {deployment.error.message}
              </Text>
            )}
            <Text size="xs" tone="quiet">
              {deployment.error.code} ·{' '}
              <OutLink href={`/docs/errors#failure-${deployment.error.code}`}>what to do</OutLink>
            </Text>
            {project.data !== undefined && <StillServes project={project.data} />}
          </Column>
        </Note>
      )}
      {deployment.waiting !== null && (
        <Note title={deployment.status === 'running' ? 'It does not serve' : 'It waits'}>
          {deployment.waiting}
        </Note>
      )}
      <Ladder deployment={deployment} />
      <WithSide side={<Story deployment={deployment} />}>
        <Column>
          <Panel
            flush
            title="Log"
            id="log"
            actions={<Command words={['logs', deployment.id, '--build']} />}
          >
            {deployment.log_removed_at === null ? (
              <LogView
                lines={lines}
                notes={notes}
                linkable
                label="Log of the build and the deployment"
                // The reason of a failure is at the end.
                follow={deployment.finished_at === null || deployment.status === 'failed'}
                file={`${name ?? deployment.id}-${deployment.generation}.log`}
              />
            ) : (
              <Empty>Retention removed this log.</Empty>
            )}
          </Panel>
          <Why deployment={deployment} />
        </Column>
      </WithSide>
      {(exits.data?.items.length ?? 0) > 0 && (
        <Panel flush title="Ends of its containers" id="ends">
          {exits.data?.items.map((exit) => (
            <Column key={`${exit.container} ${exit.finished_at ?? ''}`} gap="xs">
              <div style={{ padding: '8px 16px' }}>
                <Text>
                  <Code>{exit.container}</Code>{' '}
                  {exit.exit_code === null
                    ? 'was removed while it ran'
                    : `ended with exit code ${exit.exit_code}`}
                  {exit.out_of_memory && ', out of memory'}
                  {exit.finished_at !== null && (
                    <>
                      , <Ago at={exit.finished_at} />
                    </>
                  )}
                </Text>
              </div>
              <LogView
                lines={exit.lines.map((line, index) => ({ key: String(index), ...line }))}
                label={`Last lines of ${exit.container}`}
                follow={false}
                file={`${exit.container}.log`}
              />
            </Column>
          ))}
        </Panel>
      )}
    </PageLayout>
  );
}

const WORDS: Record<string, string> = {
  queue: 'waited',
  build: 'build',
  place: 'placement',
  copy: 'data',
  start: 'start',
  route: 'route',
};
/** The last step of a failed deployment is the one that failed. */
function markOf(
  { phases, status, finished_at }: Deployment,
  index: number,
): 'ok' | 'busy' | 'bad' | 'off' {
  const isLast = index === phases.length - 1;
  if (isLast && status === 'failed') return 'bad';
  if (isLast && (status === 'cancelled' || status === 'superseded')) return 'off';
  return phases[index]?.ended_at === null ? (finished_at === null ? 'busy' : 'bad') : 'ok';
}
/** The steps with their times. A step that is not over counts up. */
function Ladder({ deployment }: { deployment: Deployment }) {
  const now = Math.max(useNow(), Date.now());
  if (deployment.phases.length === 0) return null;
  return (
    <Panel title="Steps" id="steps">
      <ol
        className="ladder"
        style={{ gridTemplateColumns: 'repeat(auto-fit, minmax(150px, 176px))' }}
      >
        {deployment.phases.map((phase, index) => (
          <li key={phase.name}>
            <Status mark={markOf(deployment, index)}>{WORDS[phase.name] ?? phase.name}</Status>
            <span className="when">
              {durationText(
                (phase.ended_at === null
                  ? Math.min(now, Date.parse(deployment.finished_at ?? '9999-01-01'))
                  : Date.parse(phase.ended_at)) - Date.parse(phase.started_at),
              )}
            </span>
          </li>
        ))}
      </ol>
      {deployment.progress?.datasets.map((copy) => (
        <div key={copy.dataset_id} style={{ display: 'grid', gap: 6, marginTop: 12 }}>
          <Text>
            {copy.name} version {copy.version}: {copy.step}, {bytesText(copy.bytes_done)} of{' '}
            {bytesText(copy.bytes_total)}
          </Text>
          <Progress
            label={`Copy of ${copy.name}`}
            value={copy.bytes_total === 0 ? 100 : (copy.bytes_done / copy.bytes_total) * 100}
          />
        </div>
      ))}
    </Panel>
  );
}

/** The start of a hash; the whole of it can be copied. */
const Hash = ({ text, shown, what }: { text: string; shown: number; what: string }) => (
  <>
    <Code>{text.slice(0, shown)}</Code> <Copy text={text} label={`Copy the ${what}`} />
  </>
);

const TimeZone = () => (
  <Text size="xs" tone="quiet">
    times in {zoneAt(new Date())}
  </Text>
);

/** Events about the change of the route: the proof that no request was lost. */
const SWITCH = /route|confirm|publish|switch|drain|retire|serving|live|running|superseded|proxy/i;
function Story({ deployment }: { deployment: Deployment }) {
  const events = deployment.events;
  const switching = events.filter(
    ({ kind, message }) => kind !== 'failed' && (SWITCH.test(kind) || SWITCH.test(message)),
  );
  return (
    <Column>
      <Panel title="Story" id="story" actions={<TimeZone />}>
        {events.length === 0 ? (
          <Text tone="quiet">
            {deployment.story_removed_at === null
              ? 'No events yet'
              : 'Retention removed the events'}
          </Text>
        ) : (
          <ol className="ladder">
            {events.map((event, index) => (
              <li key={index}>
                <time className="when" dateTime={event.at} title={exactTime(event.at)}>
                  {exactTime(event.at).slice(11, 19)}
                </time>
                {/* The note above has the whole message of a failure. */}
                <Text inline>
                  {event.message.includes('\n') ? errorSentence(event.message) : event.message}
                </Text>
              </li>
            ))}
          </ol>
        )}
      </Panel>
      {switching.length > 0 && (
        <Panel title="The switch" id="switch">
          <ol className="ladder">
            {switching.map((event, index) => (
              <li key={index}>
                <span className="when">
                  +{durationText(Date.parse(event.at) - Date.parse(switching[0]?.at ?? event.at))}
                </span>
                <Text inline>{event.message}</Text>
              </li>
            ))}
          </ol>
        </Panel>
      )}
      <Panel title="Facts" id="facts">
        <Facts
          items={[
            ['Id', <Code key="i">{deployment.id}</Code>],
            deployment.commit === null
              ? null
              : ['Commit', <Hash key="c" text={deployment.commit} shown={12} what="commit" />],
            deployment.commit_author === null ? null : ['Author', deployment.commit_author],
            deployment.trigger === null ? null : ['Trigger', triggerText(deployment)],
            deployment.health === null
              ? null
              : ['Health', <HealthStatus key="h" health={deployment.health} />],
            deployment.image_digest === null
              ? null
              : ['Image', <Hash key="d" text={deployment.image_digest} shown={19} what="digest" />],
            deployment.finished_at === null
              ? null
              : ['Finished', <Exact key="f" at={deployment.finished_at} />],
          ]}
        />
      </Panel>
    </Column>
  );
}

/** Why this node: every node with its terms, and why the others were refused. */
function Why({ deployment }: { deployment: Deployment }) {
  const { placement } = deployment;
  if (placement === null) return null;
  const winner =
    placement.items.find(({ node_id }) => node_id === placement.winner)?.hostname ??
    placement.winner;
  return (
    <Panel flush title={`Why ${winner ?? 'no node'}`} id="why">
      <Table
        label="Nodes and their scores"
        rows={placement.items}
        id={(row) => row.node_id}
        cells={[
          { head: 'Node', rowHead: true, cell: (row) => row.hostname },
          {
            head: 'Result',
            cell: (row) =>
              row.node_id === placement.winner ? (
                <Status mark="ok">chosen</Status>
              ) : row.eligible ? (
                <Status mark="off">possible</Status>
              ) : (
                <Status mark="bad">{row.reason ?? 'refused'}</Status>
              ),
          },
          {
            head: 'Score',
            number: true,
            cell: (row) => (row.eligible ? row.score.toFixed(2) : '–'),
          },
          { head: 'Datasets there', number: true, cell: (row) => row.cached_dataset_count },
          { head: 'To copy', number: true, cell: (row) => bytesText(row.missing_bytes) },
          {
            head: 'Free',
            number: true,
            wide: true,
            cell: (row) => bytesText(row.free_storage_bytes),
          },
          {
            head: 'Estimate',
            number: true,
            wide: true,
            cell: (row) =>
              row.estimated_seconds === null ? '' : durationText(row.estimated_seconds * 1000),
          },
        ]}
      />
    </Panel>
  );
}
