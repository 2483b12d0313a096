/** The person who is signed in. */
import { ApiError } from '@berth/wire/client';
import {
  type Action,
  type ACTIONS,
  type ProjectCondition,
  roleInProject,
  type SubjectOf,
  whyNotAction,
  whyNotRole,
} from '@berth/wire/can';
import type { Project } from '@berth/wire/project';
import type { User } from '@berth/wire/user';
import type { Role } from '@berth/wire/vocabulary';
import { createContext, Fragment, type ReactNode, useContext } from 'react';
import { useAsk } from '../api/queries.ts';
import { useConnection } from '../api/connection.ts';
import { Note, Waiting } from '../ui/feedback.tsx';
import { Centered, Row } from '../ui/layout.tsx';
import { Text } from '../ui/text.tsx';
import { Problem } from '../parts/problem.tsx';
import { isRefused } from './begun.ts';
import { RefusedSession, SignIn, SignInDialog } from './sign-in.tsx';

const Me = createContext<User | null>(null);

/** The user of the session. Only below `Session`. */
export function useMe(): User {
  const me = useContext(Me);
  if (me === null) throw new Error('useMe needs a Session around it');
  return me;
}

export const hasRole = (role: Role, least: Role): boolean => whyNotRole(least, role) === null;
/**
 * Returns why the person may not do what needs `least`, as the end of a sentence; null if the role
 * is enough.
 */
export const useRoleReason = (least: Role): string | null => whyNotRole(least, useMe().role);

/** Returns why an action is not possible (wire/can.ts), as the end of a sentence; null if it is. */
export type Reasons = <A extends Action>(action: A, subject: SubjectOf<A>) => string | null;
/**
 * `project`: the role in it counts. A page that does not know it yet uses the role of the person.
 */
export function useReasons(project?: Pick<Project, 'members'>): Reasons {
  const me = useMe();
  const role = project === undefined ? me.role : (roleInProject(project.members, me) ?? me.role);
  return (action, subject) => whyNotAction(action, role, subject);
}

export const conditionOf = ({
  deleting,
  stopped,
  running_deployment_id,
}: Project): ProjectCondition => ({
  deleting,
  stopped,
  running: running_deployment_id !== null,
});
type ProjectChange = {
  [A in Action]: (typeof ACTIONS)[A]['on'] extends 'project' ? A : never;
}[Action];
/** Like `useReasons`, for actions on this project. */
export function useProjectReasons(project: Project): (action: ProjectChange) => string | null {
  const reasons = useReasons(project);
  return (action) => reasons(action, conditionOf(project));
}

export function Session({ children }: { children: ReactNode }) {
  const me = useAsk('me', {});
  const { signedOut, state } = useConnection();
  if (me.data === undefined) {
    if (me.error instanceof ApiError && me.error.status === 401) return <SignIn />;
    return (
      <Centered>
        {me.error !== null ? (
          <Problem error={me.error} what="Loading" again={() => void me.refetch()} />
        ) : state === 'away' ? (
          <Note tone="warn" live title="The control plane does not answer">
            <Text>The page tries again by itself. Running projects are not affected.</Text>
          </Note>
        ) : (
          <Row justify="center">
            <Waiting what="Berth" />
          </Row>
        )}
      </Centered>
    );
  }
  if (isRefused()) return <RefusedSession />;
  return (
    <Me value={me.data}>
      {/* For the same person the page stays, so that no typed text is lost. Somebody else gets a new one. */}
      <Fragment key={me.data.id}>{children}</Fragment>
      {signedOut && <SignInDialog email={me.data.email} />}
    </Me>
  );
}
