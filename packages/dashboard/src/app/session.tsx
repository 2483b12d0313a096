/** Shows the page to a signed-in person, and the sign-in to everybody else. */
import { ApiError } from '@berth/wire/client';
import { Fragment, type ReactNode } from 'react';
import { useApiQuery } from '../api/queries.ts';
import { useConnection } from '../api/connection.ts';
import { SignedInUser } from '../parts/permissions.ts';
import { Problem } from '../parts/problem.tsx';
import { Note, Waiting } from '../ui/feedback.tsx';
import { Centered, Row } from '../ui/layout.tsx';
import { Text } from '../ui/text.tsx';
import { isRefused } from './begun.ts';
import { RefusedSession, SignIn, SignInDialog } from './sign-in.tsx';

/**
 * The key keeps the page and its typed text for the same person; another person gets a new page.
 */
export function Session({ children }: { children: ReactNode }) {
  const me = useApiQuery('me', {});
  const { signedOut } = useConnection();
  if (me.data === undefined) return <BeforeSession me={me} />;
  if (isRefused()) return <RefusedSession />;
  return (
    <SignedInUser value={me.data}>
      <Fragment key={me.data.id}>{children}</Fragment>
      {signedOut && <SignInDialog email={me.data.email} />}
    </SignedInUser>
  );
}

function BeforeSession({ me }: { me: { error: unknown; refetch: () => unknown } }) {
  const { state } = useConnection();
  if (me.error instanceof ApiError && me.error.status === 401) return <SignIn />;
  if (me.error !== null)
    return (
      <Centered>
        <Problem error={me.error} what="Loading" again={() => void me.refetch()} />
      </Centered>
    );
  if (state === 'away')
    return (
      <Centered>
        <Note tone="warn" live title="The control plane does not answer">
          <Text>The page tries again by itself. Running projects are not affected.</Text>
        </Note>
      </Centered>
    );
  return (
    <Centered>
      <Row justify="center">
        <Waiting what="Berth" />
      </Row>
    </Centered>
  );
}
