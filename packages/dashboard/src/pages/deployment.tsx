import type { Deployment } from '@berth/wire/deployment';
import type { Project } from '@berth/wire/project';
import { isSettled } from '@berth/wire/vocabulary';
import { can } from '@berth/wire/can';
import { useNavigate, useParams } from '@tanstack/react-router';
import { errorOfLast, useApiMutation } from '../api/mutations.ts';
import { useApiQuery } from '../api/queries.ts';
import { Command, Empty } from '../parts/command.tsx';
import { commitText, LiveStatus, rolledBackText } from '../parts/deployments.tsx';
import { useLogStream } from '../parts/log-data.ts';
import { LogView } from '../parts/log-view.tsx';
import { PageLayout } from '../parts/page-layout.tsx';
import { conditionOf, useReasons } from '../parts/permissions.ts';
import { Problem } from '../parts/problem.tsx';
import { QueryBoundary } from '../parts/query-boundary.tsx';
import { Ago } from '../parts/time.tsx';
import { requesterText } from '../parts/words.ts';
import { Button } from '../ui/controls.tsx';
import { Note } from '../ui/feedback.tsx';
import { clean } from '../ui/foreign.ts';
import { Column, Panel, WithSide } from '../ui/layout.tsx';
import { OutLink, PageLink } from '../ui/text.tsx';
import { ContainerExits } from './deployment/exits.tsx';
import { FailureNote } from './deployment/failure.tsx';
import { PlacementScores } from './deployment/placement.tsx';
import { Steps } from './deployment/steps.tsx';
import { Story } from './deployment/story.tsx';

export const DeploymentPage = () => {
  const { id } = useParams({ strict: false }) as { id: string };
  const deployment = useApiQuery('getDeployment', { params: { id } });
  return (
    <QueryBoundary query={deployment} what="the deployment" page>
      {(answer) => <LoadedDeployment key={answer.id} deployment={answer} />}
    </QueryBoundary>
  );
};

function LoadedDeployment({ deployment }: { deployment: Deployment }) {
  const { data: project } = useApiQuery('getProject', { params: { id: deployment.project_id } });
  const { actions, error } = useDeploymentActions(deployment, project);
  /** Null until the project is read: people could copy a command with a placeholder. */
  const name = project?.name ?? null;
  return (
    <PageLayout
      title={`${name ?? 'Deployment'} #${deployment.generation}`}
      lead={<DeploymentLead deployment={deployment} stopped={project?.stopped === true} />}
      actions={
        <>
          {name !== null && (
            <PageLink to="/projects/$name" params={{ name }} size="sm">
              Project {name}
            </PageLink>
          )}
          <Command words={['deployment', 'show', deployment.id]} />
          <OutLink href={deployment.url}>Open</OutLink>
          {actions}
        </>
      }
    >
      <Problem error={error} what="The action" />
      <FailureNote deployment={deployment} project={project} />
      {deployment.waiting !== null && (
        <Note title={deployment.status === 'running' ? 'It does not serve' : 'It waits'}>
          {deployment.waiting}
        </Note>
      )}
      <Steps deployment={deployment} />
      <WithSide side={<Story deployment={deployment} />}>
        <Column>
          <DeploymentLog deployment={deployment} fileName={name ?? deployment.id} />
          <PlacementScores deployment={deployment} />
        </Column>
      </WithSide>
      <ContainerExits deployment={deployment} />
    </PageLayout>
  );
}

type LeadProps = { deployment: Deployment; stopped: boolean };
function DeploymentLead({ deployment, stopped }: LeadProps) {
  const requester = clean(requesterText(deployment));
  return (
    <span>
      <LiveStatus item={deployment} stopped={stopped} strong />
      {`: ${commitText(deployment)}, requested `}
      <Ago at={deployment.created_at} />
      {rolledBackText(deployment)}
      {requester !== '' && ` by ${requester}`}
    </span>
  );
}

/** Returns the buttons for the deployment's actions, and the error of the last action. */
function useDeploymentActions(deployment: Deployment, project: Project | undefined) {
  const { id, status, project_id } = deployment;
  const navigate = useNavigate();
  const open = (next: Deployment): void =>
    void navigate({ to: '/deployments/$id', params: { id: next.id } });
  const reasonAgainst = useReasons(project);
  const cancel = useApiMutation('cancelDeployment');
  const rollback = useApiMutation('rollback', open);
  const again = useApiMutation('createDeployment', open);
  /** True if the deployment never served: then the page offers a new deployment. */
  const neverServed = isSettled(status) && !can('rollback_to', status);
  const params = { id: project_id };
  const actions = (
    <>
      {neverServed && (
        <Button
          look="main"
          reason={
            project === undefined
              ? 'the project is not read yet'
              : reasonAgainst('deploy', conditionOf(project))
          }
          busy={again.busy}
          onClick={() => void again.run({ params, body: {} })}
        >
          Deploy again
        </Button>
      )}
      {can('rollback_to', status) && status !== 'running' && (
        <Button
          reason={reasonAgainst('rollback_to', status)}
          busy={rollback.busy}
          onClick={() => void rollback.run({ params, body: { deployment_id: id } })}
        >
          Roll back to this
        </Button>
      )}
      {/* Keep a pressed button, so that it keeps the focus. */}
      {(!isSettled(status) || cancel.startedAt !== 0) && (
        <Button
          look="danger"
          reason={
            reasonAgainst('cancel', status) ??
            (deployment.cancel_requested ? 'its end is requested already' : null)
          }
          busy={cancel.busy}
          onClick={() => void cancel.run({ params: { id } })}
        >
          Cancel
        </Button>
      )}
    </>
  );
  return { actions, error: errorOfLast(cancel, rollback, again) };
}

type LogProps = { deployment: Deployment; fileName: string };
function DeploymentLog({ deployment, fileName }: LogProps) {
  const { lines, notes } = useLogStream(`/api/deployments/${deployment.id}/logs`);
  return (
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
          // Scroll to the end of a failed deployment's log, where the reason is.
          follow={deployment.finished_at === null || deployment.status === 'failed'}
          file={`${fileName}-${deployment.generation}.log`}
        />
      ) : (
        <Empty>Retention removed this log.</Empty>
      )}
    </Panel>
  );
}
