//! Builds the program.

use super::asm::{Assembler, By, Jump, Program, Slot, Test};
use super::plan::{PERMILLE, Plan, Range};
use super::source::SourceHash;
use protocol::cid::{CID_LEN, Cipher, TAG_SHIFT};

/// The program for a group: its result is a position within the group, for any packet at all. The same cipher and plan
/// give the same program.
///
/// Three rules of the kernel shape it. A load past the end of the packet ends the program with 0, which would be the
/// first member, so the length is tested before each load. A result that is no position makes the kernel spread over
/// *all* sockets, parked ones too, so every return is in a range of the plan. And its checker takes a return for an
/// instruction that is passed (`check_load_and_stores` in net/core/filter.c), so no slot is read behind one unless
/// written there again.
#[must_use]
pub fn program(cipher: &Cipher, plan: &Plan) -> Program {
    let mut asm = Assembler::default();
    let no_id = find_id(&mut asm);
    decrypt(&mut asm, cipher);
    // A = tag
    asm.shift_right(TAG_SHIFT);
    asm.a_to_x();
    for range in plan.live() {
        deliver(&mut asm, range);
    }
    asm.land(no_id);
    SourceHash::new(cipher).assemble(&mut asm);
    if let Some((canary, permille)) = plan.canary() {
        let rest = asm.jump_if(Test::Above(last_of_share(permille)));
        choose(&mut asm, canary);
        asm.land([rest]);
    }
    choose(&mut asm, plan.active());
    asm.finish()
}

/// The last hash that belongs to a share of 1 to 1 000 permille. As the share grows, clients that are in it stay.
pub(super) fn last_of_share(permille: u16) -> u32 {
    let hashes = (u64::from(permille) << 32) / u64::from(PERMILLE);
    u32::try_from(hashes.saturating_sub(1)).unwrap_or(u32::MAX)
}

/// A = high word of the connection ID, LOW = its low word; or a jump: there is none that could be ours.
fn find_id(asm: &mut Assembler) -> [Jump; 3] {
    // Room for a short header: one byte and an ID. Nothing that a client may send is shorter (RFC 9000, 10.3: a
    // stateless reset has 21 bytes).
    asm.length();
    let runt = asm.jump_unless(Test::AtLeast(SHORT_ID + ID));
    asm.byte(0);
    let long = asm.jump_if(Test::HasBits(LONG_HEADER));

    // Short header (RFC 9000, 17.3): the ID follows the first byte.
    asm.word(SHORT_ID + 4);
    asm.store(LOW);
    asm.word(SHORT_ID);
    let found = asm.jump();

    // Long header (RFC 8999, 5.1, so for every version): first byte, version, length of the destination ID, the ID.
    asm.land([long]);
    asm.length();
    let truncated = asm.jump_unless(Test::AtLeast(LONG_ID + ID));
    asm.byte(LONG_ID - 1);
    let foreign = asm.jump_unless(Test::Is(ID));
    asm.word(LONG_ID + 4);
    asm.store(LOW);
    asm.word(LONG_ID);

    asm.land([found]);
    [runt, truncated, foreign]
}

/// A = high word of the decrypted block: Speck64/128 backwards (Beaulieu et al., "The SIMON and SPECK Families of
/// Lightweight Block Ciphers"), 20 instructions a round.
fn decrypt(asm: &mut Assembler, cipher: &Cipher) {
    for &key in cipher.round_keys().iter().rev() {
        // A = high ^ low, rotated right by 3: the new low
        asm.store(HIGH);
        asm.load_x(LOW);
        asm.xor(By::X);
        asm.store(LOW);
        asm.shift_right(3);
        asm.a_to_x();
        asm.load(LOW);
        asm.shift_left(29);
        asm.or(By::X);
        asm.store(LOW);
        // A = (high ^ key) - low, rotated left by 8: the new high
        asm.a_to_x();
        asm.load(HIGH);
        asm.xor(By::K(key));
        asm.sub(By::X);
        asm.store(HIGH);
        asm.shift_left(8);
        asm.a_to_x();
        asm.load(HIGH);
        asm.shift_right(24);
        asm.or(By::X);
    }
}

/// Returns the position of the member whose tag is in X, if it is in this range. Members of one generation have
/// consecutive tags, so one subtraction and one comparison tell.
fn deliver(asm: &mut Assembler, range: &Range) {
    asm.x_to_a();
    asm.sub(By::K(range.first().get()));
    asm.skip_if(Test::AtLeast(range.members().into()), 2);
    asm.add(By::K(range.position().into()));
    asm.return_a();
}

/// Returns the position of a member of the range, by the hash in A. Its lower half chooses: the share of the canary was
/// decided by the upper end, so that each member of either range gets its part.
fn choose(asm: &mut Assembler, range: Range) {
    asm.and(By::K(0xffff));
    asm.mul(By::K(range.members().into()));
    asm.shift_right(16);
    asm.add(By::K(range.position().into()));
    asm.return_a();
}

#[expect(clippy::cast_possible_truncation, reason = "8, as an operand")]
const ID: u32 = CID_LEN as u32;
/// The top bit of the first byte tells long headers from short ones in every version (RFC 8999, 5).
const LONG_HEADER: u32 = 0x80;
/// Where the destination connection ID begins.
const SHORT_ID: u32 = 1;
const LONG_ID: u32 = 6;

const LOW: Slot = Slot(0);
const HIGH: Slot = Slot(1);
