/** The signed-in person, and which actions this person can do. */
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
import { createContext, useContext } from 'react';

/** The signed-in user; `Session` (app/session.tsx) provides it. */
export const SignedInUser = createContext<User | null>(null);

/** Returns the user of the session. Works only below `Session`. */
export function useMe(): User {
  const me = useContext(SignedInUser);
  if (me === null) throw new Error('useMe needs a Session around it');
  return me;
}

export const hasRole = (role: Role, least: Role): boolean => whyNotRole(least, role) === null;
/** Returns why the person lacks the role `least` (end of a sentence); null if the role suffices. */
export const useRoleReason = (least: Role): string | null => whyNotRole(least, useMe().role);

/** Returns why an action is impossible (wire/can.ts), as the end of a sentence; otherwise null. */
export type Reasons = <A extends Action>(action: A, subject: SubjectOf<A>) => string | null;
/**
 * `project`: uses the person's role in this project. Without it, uses the person's own role, for a
 * page that has not read the project yet.
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
type ProjectAction = {
  [A in Action]: (typeof ACTIONS)[A]['on'] extends 'project' ? A : never;
}[Action];
/** Like `useReasons`, for actions on this project. */
export function useProjectReasons(project: Project): (action: ProjectAction) => string | null {
  const reasons = useReasons(project);
  return (action) => reasons(action, conditionOf(project));
}
