/** The person who is signed in. */
import { ApiError } from '@berth/wire/client';
import type { User } from '@berth/wire/user';
import type { Role } from '@berth/wire/vocabulary';
import { createContext, type ReactNode, useContext } from 'react';
import { useAsk } from '../api/queries.ts';
import { useConnection } from '../api/connection.ts';
import { Note, Waiting } from '../ui/feedback.tsx';
import { Centered } from '../ui/layout.tsx';
import { Text } from '../ui/text.tsx';
import { Problem } from '../parts/problem.tsx';
import { SignIn, SignInDialog } from './sign-in.tsx';

const Me = createContext<User | null>(null);

/** The user of the session. Only below `Session`. */
export function useMe(): User {
  const me = useContext(Me);
  if (me === null) throw new Error('useMe needs a Session around it');
  return me;
}

const ORDER: readonly Role[] = ['viewer', 'developer', 'admin'];
export const hasRole = (role: Role, least: Role): boolean => ORDER.indexOf(role) >= ORDER.indexOf(least);
/** Why the person may not do what needs `least`; null if the role is enough. The end of a sentence, as in wire/can.ts. */
export function useRoleReason(least: Role): string | null {
  const { role } = useMe();
  return hasRole(role, least) ? null : `your role is ${role}; this needs ${least}`;
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
          <Waiting what="Berth" />
        )}
      </Centered>
    );
  }
  return (
    <Me value={me.data}>
      {children}
      {/* The page stays, so that no typed text is lost. */}
      {signedOut && <SignInDialog email={me.data.email} />}
    </Me>
  );
}
